"""The multi-bit mechanism: one bit about each of a few features, for features in a known range."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gfl_lightning.checks import require
from gfl_lightning.privacy.randomise.mechanism import Array, FeatureMechanism

OPTIMAL_EPSILON = 2.18


@dataclass(frozen=True)
class MultiBit(FeatureMechanism):
    """x̃_i = (a+b)/2 ± (d/m) (b−a)/2 · (e^{ε/m}+1)/(e^{ε/m}−1) for m features drawn at random, (a+b)/2 for the others.

    The sign of a drawn feature is + with probability 1/(e^{ε/m}+1) + (x_i−a)/(b−a) · (e^{ε/m}−1)/(e^{ε/m}+1); features
    outside the range [a, b] count as its ends. E x̃ = x, and m = ⌊ε/2.18⌋, at least 1, has the least variance.

    *Why it is ε-private.* Which features are drawn does not depend on x. The probability of either sign lies between
    1/(e^{ε/m}+1) and e^{ε/m}/(e^{ε/m}+1), so each of the m bits is ε/m-private, and m of them compose to ε.

    Its noise grows with the number of features, so it is for few of them, or for aggregates over very many clients.

    >>> MultiBit().expected(np.array([[0.2, 3.0]]))
    array([[0.2, 1. ]])

    Args:
        low: a, public.
        high: b, public.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        require(
            finite and self.low < self.high, "low and high", "be finite, the first the lower", (self.low, self.high)
        )

    def expected(self, x: Array) -> Array:
        """x within the range."""
        return np.clip(x, self.low, self.high)

    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        """Independent draws."""
        n, d = x.shape
        m = max(1, min(d, int(epsilon / OPTIMAL_EPSILON)))
        rows = np.arange(n)[:, None]
        chosen = np.argpartition(source.random((n, d)), m - 1, axis=1)[:, :m]
        t = math.tanh(epsilon / m / 2)
        share = (self.expected(x)[rows, chosen] - self.low) / (self.high - self.low)
        up = source.random((n, m)) < (1 - t) / 2 + share * t
        x = np.full((n, d), (self.low + self.high) / 2)
        x[rows, chosen] += np.where(up, 1, -1) * (d / m) * (self.high - self.low) / 2 / t
        return x
