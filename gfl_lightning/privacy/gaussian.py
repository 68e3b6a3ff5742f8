"""Exact accounting of Gaussian releases: any number of them, adaptively composed, is one with μ² = Σ (Δ/σ)².

δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)   (Balle and Wang), tight for the Gaussian mechanism.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from gfl_lightning.checks import require


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ(ε) of a Gaussian mechanism with sensitivity μ and unit noise."""
    if mu == 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε with δ(ε) ≤ δ, never rounded down; 0 where μ is so small that no ε is needed."""
    require_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    epsilon = float(brentq(lambda e: gaussian_delta(e, mu) - delta, low, high, xtol=1e-12, rtol=1e-12))
    return epsilon * (1 + 1e-9)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ that (ε, δ) allows."""
    require_delta(delta)
    require(0 < epsilon < math.inf, "epsilon", "be positive and finite", epsilon)
    high = 1.0
    while gaussian_epsilon(high, delta) <= epsilon:
        high *= 2
    mu = float(brentq(lambda m: gaussian_delta(epsilon, m) - delta, 0.0, high, xtol=1e-12))
    return mu * (1 - 1e-9)


def require_delta(delta: float) -> None:
    """Refuse a δ that is not a probability strictly between 0 and 1."""
    require(0 < delta < 1, "delta", "lie in (0, 1)", delta)
