"""How sure a measured success is, and the ε that errors of a test prove."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import beta

CONFIDENCE = 0.95
RESAMPLES = 2000


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a share.

    >>> [round(end, 3) for end in clopper_pearson(10, 10)]
    [0.692, 1.0]
    """
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high


def interval(scores: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Of a mean score at 95 %: Clopper–Pearson where all are 0 or 1, else percentiles of bootstrap means.

    >>> interval([1.0, 1.0, 0.0])[1] > 0.9
    True
    """
    values = np.asarray(scores, dtype=float)
    if bool(np.isin(values, (0.0, 1.0)).all()):
        return clopper_pearson(int(values.sum()), len(values))
    generator = np.random.default_rng(seed)
    means = values[generator.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def two_way_interval(scores: Sequence[Sequence[float]], seed: int = 0) -> tuple[float, float]:
    """Of the mean of scores in rows and columns that share luck, such as records in federations: both are resampled.

    >>> two_way_interval([[1.0, 1.0], [1.0, 1.0]])
    (1.0, 1.0)
    """
    values = np.asarray(scores, dtype=float)
    generator = np.random.default_rng(seed)
    rows, columns = (generator.integers(size, size=(RESAMPLES, size)) for size in values.shape)
    means = values[rows[:, :, None], columns[:, None, :]].mean((1, 2))
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def better(scores: Sequence[float], blind: Sequence[float], seed: int = 0) -> bool:
    """Whether scores exceed those of guessing on the same targets: the 95 % bootstrap interval of the mean difference.

    >>> better([0.9, 0.8, 1.0], [0.1, 0.3, 0.2]), better([0.1, 0.4, 0.2], [0.2, 0.2, 0.3])
    (True, False)
    """
    difference = np.asarray(scores, dtype=float) - np.asarray(blind, dtype=float)
    generator = np.random.default_rng(seed)
    means = difference[generator.integers(len(difference), size=(RESAMPLES, len(difference)))].mean(1)
    return float(np.quantile(means, (1 - CONFIDENCE) / 2)) > 1e-9


def empirical_epsilon(right_yes: int, yes: int, right_no: int, no: int, delta: float) -> float:
    """The ε below which the errors of a test are not possible, at 95 %: max ln((TPR − δ)/FPR), by Clopper–Pearson.

    An (ε, δ)-private release leaves every test with TPR ≤ e^ε FPR + δ, and likewise for "no". Both rates are taken at
    the unfavourable ends of their intervals, so the result is a lower bound on the true ε with that confidence.

    >>> empirical_epsilon(50, 100, 50, 100, delta=0.0)
    0.0
    >>> round(empirical_epsilon(100, 100, 100, 100, delta=0.0), 1)
    3.3
    """
    bounds = []
    for hits, of, misses, against in ((right_yes, yes, no - right_no, no), (right_no, no, yes - right_yes, yes)):
        sure, unsure = clopper_pearson(hits, of)[0] - delta, clopper_pearson(misses, against)[1]
        bounds.append(math.log(sure / unsure) if sure > 0 else 0.0)
    return max(0.0, *bounds)
