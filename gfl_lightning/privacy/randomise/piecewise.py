"""The piecewise mechanism: a number in a known range, unbiased, within bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.numbers import NumberLoss
from gfl_lightning.privacy.randomise.lattice import on_lattice
from gfl_lightning.privacy.randomise.mechanism import Array, LabelMechanism, require_finite


@dataclass(frozen=True)
class Piecewise(LabelMechanism):
    """ỹ uniform in [l, l + C − 1] with probability p, else in the rest of [−C, C]; E ỹ = y, for y scaled to [−1, 1].

    C = (e^{ε/2} + 1)/(e^{ε/2} − 1), l = (C + 1)/2 · y − (C − 1)/2 and p = e^{ε/2}/(e^{ε/2} + 1); numbers outside the
    range count as its ends.

    *Why it is ε-private.* The density of ỹ is p/(C − 1) inside and (1 − p)/(C + 1) outside, whatever y is, and their
    ratio is e^{ε/2} (C + 1)/(C − 1) = e^ε.

    >>> abs(float(Piecewise(0.0, 10.0).draw(np.array([5.0]), 1, 4.0, np.random.default_rng(0))[0])) < 20
    True

    Args:
        low: the least value that a label can have; public.
        high: the greatest.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        require(
            finite and self.low < self.high, "low and high", "be finite, the first the lower", (self.low, self.high)
        )

    def check(self, loss: Loss) -> None:
        """Labels are numbers."""
        require(loss.of_numbers, "labels", "be RandomisedResponse where labels are classes", "Piecewise")
        anything = isinstance(loss, NumberLoss) and loss.least == -math.inf
        require(anything, "loss", "be SquaredError or Huber where numbers are randomised, which may fall below 0", loss)

    def scaled(self, loss: Loss) -> Loss:
        """The loss on the scale of the range: its middle is 0, and labels spread evenly over it have deviation 1."""
        return loss.within(self.low, self.high) if isinstance(loss, NumberLoss) else loss

    def draw(self, y: Array, outputs: int, epsilon: float, source: np.random.Generator) -> Array:
        """Independent draws, on a lattice."""
        require_finite("y", y)
        y = np.clip(y, self.low, self.high)
        if math.isinf(epsilon):
            return y
        centre, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        C = 1 / math.tanh(epsilon / 4)
        left = (C + 1) / 2 * (y - centre) / half - (C - 1) / 2
        inside = source.random(len(y)) < 1 / (1 + math.exp(-epsilon / 2))
        place = source.random(len(y))
        outside = place * (C + 1) - C
        outside = np.where(outside < left, outside, outside + C - 1)
        return centre + half * on_lattice(np.where(inside, left + place * (C - 1), outside), C)

    def corrected(self, loss: Loss, outputs: int, epsilon: float) -> Loss:
        """The same loss, as the mean of a draw is the truth."""
        return loss

    def shown(self, y: Array, outputs: int, loss: Loss, epsilon: float) -> Array:
        """ỹ on the scale of the loss over √(1 + 3u²)/(1 − u), u = e^{−ε/2}: its deviation where y is spread evenly."""
        u = math.exp(-epsilon / 2)
        t: Array = loss.targets(torch.from_numpy(y), outputs, torch.float64).numpy()
        return t * (1 - u) / math.sqrt(1 + 3 * u * u)
