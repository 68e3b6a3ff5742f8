"""Gaussian noise on the direction of a record: (ε, δ), with exact composition over the records of a client."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gfl_lightning.checks import require_count
from gfl_lightning.privacy.gaussian import gaussian_mu, require_delta
from gfl_lightning.privacy.randomise.lattice import on_lattice
from gfl_lightning.privacy.randomise.mechanism import Array, FeatureMechanism, require_finite
from gfl_lightning.privacy.randomise.sphere import directions


@dataclass(frozen=True)
class GaussianDirection(FeatureMechanism):
    """x̃ = v + N(0, σ² I) with v = x/‖x‖ and σ = 2 √n / μ(ε, δ) for n records that together spend (ε, δ).

    *Why it is (ε, δ)-private.* Two directions are at most 2 apart; a Gaussian release of sensitivity Δ and noise σ has
    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ = Δ/σ, n of them compose to μ √n, and μ(ε, δ) is the largest with
    δ(ε) ≤ δ.

    `PrivUnit` has less noise at the same ε and needs no δ; this is for clients with several records, where noise that
    composes as √n wins over a budget that is divided by n.

    >>> GaussianDirection(delta=1e-6).delta
    1e-06

    Args:
        delta: δ.
        dimensions: of a public random projection of the features; none, or more than there are, means all of them.
    """

    delta: float = 1e-5
    dimensions: int | None = None

    def __post_init__(self) -> None:
        require_delta(self.delta)
        if self.dimensions is not None:
            require_count("dimensions", self.dimensions)

    def width(self, num_features: int) -> int:
        """The dimensions, or d where that is less."""
        return num_features if self.dimensions is None else min(self.dimensions, num_features)

    def expected(self, x: Array) -> Array:
        """v."""
        return directions(x, self.dimensions)

    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        """Independent draws for one record each."""
        return self.draw(x, epsilon, source)

    def draw(self, x: Array, epsilon: float, source: np.random.Generator, records: int = 1) -> Array:
        """Independent draws, on a lattice."""
        if epsilon == 0 or math.isinf(epsilon):
            return super().draw(x, epsilon, source, records)
        require_finite("x", x)
        v = self.expected(x)
        sigma = 2 * math.sqrt(records) / gaussian_mu(epsilon, self.delta)
        return on_lattice(v + sigma * source.standard_normal(v.shape), sigma)
