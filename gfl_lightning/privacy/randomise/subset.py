"""Subset selection: a few words, the client's among them more often than by chance; for sparse features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gfl_lightning.privacy.randomise.mechanism import Array, FeatureMechanism


@dataclass(frozen=True)
class Subset(FeatureMechanism):
    """x̃_i = (1{i ∈ Z} − b)/(a − b), Z being k of the items 0 … d, with E x̃ = x/‖x‖₁.

    The client draws one item w of its own, item i with probability x_i/‖x‖₁ (item d, which means none, where x = 0),
    and sends a set Z of k items: any set that holds w with probability in proportion to e^ε, any other in proportion
    to 1. A word is in Z with probability a if it is w, and b if it is not.

    *Why it is ε-private.* Given w, two sets differ in probability by a factor of e^ε at most, and the normalising
    constant is the same for every w; a mixture over w keeps that bound, so the record does too.

    Made for features that say which of many words a record has: at ε = 8 and Cora's 1433 words it names one of the
    record's own words two times in three. Where features are dense, or ε is below about 5, `PrivUnit` is better.

    >>> draw = Subset().draw(np.array([[0.0, 1.0, 1.0, 0.0]]), 9.0, np.random.default_rng(0))
    >>> int((draw > 0).sum())
    1
    """

    def expected(self, x: Array) -> Array:
        """x/‖x‖₁; negative entries count as 0."""
        x = np.maximum(x, 0)
        total = x.sum(1, keepdims=True)
        return np.divide(x, total, out=np.zeros_like(x), where=total > 0)

    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        """Independent draws."""
        share = self.expected(x)
        n, d = x.shape
        k, a, b = chances(d + 1, epsilon)
        below = np.cumsum(share, axis=1) <= source.random((n, 1))
        own = np.where(share.any(axis=1), np.minimum(below.sum(axis=1), d - 1), d)
        key = source.random((n, d + 1))
        rows = np.arange(n)
        key[rows, own] = np.where(source.random(n) < a, -1.0, 2.0)
        chosen = np.argpartition(key, k - 1, axis=1)[:, :k]
        drawn = np.zeros((n, d + 1))
        drawn[rows[:, None], chosen] = 1
        return (drawn[:, :d] - b) / (a - b)


def chances(items: int, epsilon: float) -> tuple[int, float, float]:
    """k, of least variance, and how likely an item is in Z if it is w (a), and if it is not (b)."""
    k = max(1, round(items / (math.exp(epsilon) + 1)))
    a = k / (k + (items - k) * math.exp(-epsilon))
    return k, a, (a * (k - 1) + (1 - a) * k) / (items - 1)
