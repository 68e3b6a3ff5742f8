"""k-ary randomised response, the best pure mechanism for one class among a few."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.forward_corrected import ForwardCorrected
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.privacy.randomise.mechanism import Array, LabelMechanism


@dataclass(frozen=True)
class RandomisedResponse(LabelMechanism):
    """ỹ = y with probability e^ε/(e^ε + c − 1), and each other class with probability 1/(e^ε + c − 1).

    *Why it is ε-private.* The probability of any answer is one of these two numbers, whatever y is, and their ratio is
    e^ε. The same law in other words: with probability β = c/(e^ε + c − 1) a class drawn uniformly, else the truth.

    >>> RandomisedResponse().draw(np.array([0, 1, 2]), 3, 9.0, np.random.default_rng(0))
    array([0, 1, 2])
    """

    def check(self, loss: Loss) -> None:
        """Labels are classes."""
        require(not loss.of_numbers, "labels", "be Piecewise where labels are numbers", "RandomisedResponse")

    def draw(self, y: Array, outputs: int, epsilon: float, source: np.random.Generator) -> Array:
        """Independent answers."""
        known = bool(np.isin(y, np.arange(outputs)).all())
        require(known, "y", f"hold classes from 0 to {outputs - 1} alone", sorted(set(y.tolist())))
        flipped = source.random(len(y)) < flip(epsilon, outputs)
        return np.where(flipped, source.integers(outputs, size=len(y)), y)

    def corrected(self, loss: Loss, outputs: int, epsilon: float) -> Loss:
        """−log of the likelihood of the answer."""
        return loss if math.isinf(epsilon) else ForwardCorrected(flip(epsilon, outputs))

    def shown(self, y: Array, outputs: int, loss: Loss, epsilon: float) -> Array:
        """(1{ỹ = i} − 1/c)/(1 − β), on average 1{y = i} − 1/c."""
        return (np.eye(outputs)[y.astype(np.int64)] - 1 / outputs) / (1 - flip(epsilon, outputs))


def flip(epsilon: float, classes: int) -> float:
    """β = c/(e^ε + c − 1), computed so that no ε overflows."""
    return classes * math.exp(-epsilon) / (1 + (classes - 1) * math.exp(-epsilon))
