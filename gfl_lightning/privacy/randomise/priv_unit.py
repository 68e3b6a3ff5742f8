"""PrivUnit in its Gaussian form: the direction of a record, unbiased, with the noise of an optimal pure mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from gfl_lightning.checks import require_count
from gfl_lightning.privacy.randomise.lattice import on_lattice
from gfl_lightning.privacy.randomise.mechanism import Array, FeatureMechanism
from gfl_lightning.privacy.randomise.sphere import directions, somewhere


@dataclass(frozen=True)
class PrivUnit(FeatureMechanism):
    """x̃ = (a v + (I − v vᵀ) n) / m with v = x/‖x‖, n ~ N(0, I/k) and E x̃ = v.

    √k a is a standard normal number given that it is ≥ γ, with probability p, or given that it is < γ.

    *Why it is ε-private.* Let q = P(g ≥ γ) for a standard normal g. Against N(0, I/k), z = a v + (I − v vᵀ) n has the
    density p/q where √k z·v ≥ γ and (1 − p)/(1 − q) elsewhere, since the part of z orthogonal to v is that of a normal
    vector. These two values do not depend on v, so no two records' densities differ by more than their ratio,
    which is e^ε: q decides p. Of all q the one with the largest m = E a = φ(γ)/√k (p/q − (1 − p)/(1 − q)) is taken, and
    dividing by m makes z unbiased. A record without a direction (all zeros) gets a uniform one.

    Noise in any direction of feature space has standard deviation 1/(m√k), whatever k is: about 0.9 at ε = 3 and 0.4 at
    ε = 8, for a record of length 1. So it is for sums over many clients.

    >>> PrivUnit().draw(np.array([[3.0, 4.0]]), math.inf, np.random.default_rng(0))
    array([[0.6, 0.8]])

    Args:
        dimensions: k, of a public random projection of the features; none, or more than there are, means all of them.
    """

    dimensions: int | None = None

    def __post_init__(self) -> None:
        if self.dimensions is not None:
            require_count("dimensions", self.dimensions)

    def width(self, num_features: int) -> int:
        """k, or d where that is less."""
        return num_features if self.dimensions is None else min(self.dimensions, num_features)

    def expected(self, x: Array) -> Array:
        """v."""
        return directions(x, self.dimensions)

    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        """Independent draws, on a lattice."""
        v = somewhere(directions(x, self.dimensions), source)
        n, k = v.shape
        gamma, p, mean = cap(epsilon)
        q = ndtr(-gamma)
        inside, level = source.random(n) < p, source.random(n)
        along = np.where(inside, -ndtri(q * (1 - level)), ndtri(np.maximum((1 - q) * level, np.finfo(float).tiny)))
        noise = source.standard_normal((n, k))
        z = noise + (along - (noise * v).sum(1))[:, None] * v
        return on_lattice(z / mean, 1 / mean)


FARTHEST = 37.0
"""Beyond it the tail of a normal number is less than the smallest numbers; the best γ comes near it at ε = 700."""


@lru_cache(maxsize=256)
def cap(epsilon: float) -> tuple[float, float, float]:
    """γ, p and √k m of the cap that makes m largest for ε."""

    def mean(gamma: float) -> float:
        q = float(ndtr(-gamma))
        inside = _inside(epsilon, q)
        density = math.exp(-gamma * gamma / 2) / math.sqrt(2 * math.pi)
        return density * (inside / q - (1 - inside) / (1 - q))

    most = min(4.0 + math.sqrt(2 * epsilon), FARTHEST)
    best = minimize_scalar(lambda gamma: -mean(gamma), bounds=(0.0, most), method="bounded")
    gamma = float(best.x)
    return gamma, _inside(epsilon, float(ndtr(-gamma))), mean(gamma)


def _inside(epsilon: float, q: float) -> float:
    """p with (p/q) / ((1 − p)/(1 − q)) = e^ε."""
    return 1 / (1 + math.exp(-epsilon) * (1 - q) / q)
