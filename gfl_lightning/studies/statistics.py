"""Means over repetitions with their 95 % confidence intervals, and when two of them agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """mean ± half_width over n values; the half-width of fewer than two values is not known (nan)."""

    mean: float
    half_width: float
    n: int

    def overlaps(self, mean: float, half_width: float) -> bool:
        """Whether the interval meets mean ± half_width; an unknown width counts as none."""
        own = 0.0 if math.isnan(self.half_width) else self.half_width
        return abs(self.mean - mean) <= own + half_width


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student's 95 % interval: t_{0.975, n−1} s / √n."""
    mean, half = band(np.asarray(values, dtype=float)[:, None])
    return Estimate(float(mean[0]), float(half[0]), len(values))


def band(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same column by column: ``[n, points]`` to means and half-widths ``[points]``."""
    n = len(values)
    if n < 2:
        return values.mean(0), np.full(values.shape[1], math.nan)
    return values.mean(0), t.ppf((1 + CONFIDENCE) / 2, n - 1) * values.std(0, ddof=1) / math.sqrt(n)
