"""Means over splits of the same rows, with intervals that know that the splits overlap; over clients for one split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """mean, with low and high the ends of its 95 % interval; nan where there are fewer than two values."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def sign(self) -> int:
        """1 or −1 where the interval lies above or below 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)

    def record(self) -> dict[str, float | None]:
        """For a file."""
        return {name: _known(getattr(self, name)) for name in ("mean", "low", "high")}


def interval(values: Sequence[float], tested_per_trained: float) -> Interval:
    """Mean of values over J splits and Nadeau and Bengio's interval: t_{0.975, J−1} s √(1/J + n_test / n_train).

    The splits share rows, so that their values vary less than those of independent data would; the second term makes up
    for it.

    >>> interval([1.0, 3.0], tested_per_trained=0.0).half_width > 12
    True
    """
    found = np.array([value for value in values if math.isfinite(value)], dtype=float)
    J = len(found)
    if J < 2:
        return Interval(float(found.mean()) if J else math.nan, math.nan, math.nan)
    reach = t.ppf((1 + CONFIDENCE) / 2, J - 1) * found.std(ddof=1) * math.sqrt(1 / J + tested_per_trained)
    return Interval(float(found.mean()), float(found.mean() - reach), float(found.mean() + reach))


def interval_over_clients(values: Sequence[float], without: Sequence[Sequence[float]]) -> Interval:
    """Mean over J trainings on one split, with the jackknife's interval over clients: t_{0.975, G−1} s.

    s² = (G−1)/G Σ_g (θ_g − θ̄)² + s_J²/J, where θ_g is the mean without the g-th group of clients, ``without [J, G]``,
    and s_J the deviation over trainings: what other clients, and other draws of training, would have changed.

    >>> round(interval_over_clients([2.0], [[1.0, 2.0, 3.0]]).half_width, 2)  # s² = 2/3 · 2
    4.97
    """
    found = np.array([value for value in values if math.isfinite(value)], dtype=float)
    left = np.array(without, dtype=float).reshape(len(without), -1).mean(0) if len(without) else np.zeros(0)
    J, G = len(found), len(left)
    if not J or G < 2 or not np.isfinite(left).all():
        return Interval(float(found.mean()) if J else math.nan, math.nan, math.nan)
    square = (G - 1) / G * float(np.square(left - left.mean()).sum()) + (found.var(ddof=1) / J if J > 1 else 0.0)
    reach = t.ppf((1 + CONFIDENCE) / 2, G - 1) * math.sqrt(square)
    return Interval(float(found.mean()), float(found.mean() - reach), float(found.mean() + reach))


def _known(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
