"""An audit by canaries: what ε do the outputs on two neighbouring data sets prove, and to which claim?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Scores = NDArray[np.float64]
DOUBT = 1e-4
"""Chance that an audit exceeds a claim that its outputs only just keep."""


def least_epsilon(one: Scores, other: Scores, delta: float) -> float:
    """The ε that scores of outputs on two neighbours prove, at most: P(one ∈ S) ≤ e^ε P(other ∈ S) + δ for every S.

    S are scores above a threshold, or below. It is chosen on a first third of the scores, tried on the rest, with
    Clopper and Pearson's bounds on both chances.
    """
    found = 0.0
    for sign in (1, -1):
        for first, second in ((sign * one, sign * other), (sign * other, sign * one)):
            part = len(first) // 3
            candidates = np.unique(np.quantile(np.concatenate([first[:part], second[:part]]), np.linspace(0, 1, 80)))
            tried = [_proven(first[:part], second[:part], at, delta) for at in candidates]
            found = max(found, _proven(first[part:], second[part:], candidates[int(np.argmax(tried))], delta))
    return found


def _proven(first: Scores, second: Scores, threshold: float, delta: float) -> float:
    hits, n, false, m = int((first >= threshold).sum()), len(first), int((second >= threshold).sum()), len(second)
    least = beta.ppf(DOUBT / 8, hits, n - hits + 1) if hits else 0.0
    most = beta.ppf(1 - DOUBT / 8, false + 1, m - false) if false < m else 1.0
    return float(np.log(max(least - delta, 1e-300) / most))


@dataclass(frozen=True)
class Audit:
    """What was claimed and what the outputs prove.

    Args:
        claimed: ε.
        proven: the least that ε must be.
    """

    claimed: float
    proven: float


def audited(one: Scores, other: Scores, claimed: float, delta: float) -> Audit:
    """The audit of scores of the outputs on two neighbours."""
    return Audit(claimed, least_epsilon(one, other, delta))
