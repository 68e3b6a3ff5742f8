"""The Gaussian mechanism, the paper's noise; with a bound its cost is exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.privacy.exact_normal import rounded_normal
from gfl_lightning.privacy.mechanisms.mechanism import Cost, Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource

SMALLEST = 1e-30


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """u ↦ u · min(1, C/‖u‖) + N(0, σ²) on every entry; the default changes nothing.

    The paper's "hn" and "hn_gn" are noise without a bound, which hides something and guarantees nothing.

    >>> Gaussian(std=2.0, clip=1.0).cost(torch.tensor([2.0]), entries=7).mu_squared.tolist()
    [1.0]

    Args:
        std: σ.
        clip: C, the bound on the Euclidean norm; infinite means none.
    """

    std: float = 0.0
    clip: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.std < math.inf, "std", "be finite and at least 0", self.std)
        require(
            not 0 < self.std < SMALLEST,
            "std",
            f"be 0 or at least {SMALLEST:g}, as smaller steps are no numbers",
            self.std,
        )

    @property
    def spread(self) -> float:
        """σ."""
        return self.std

    def draw(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        """Independent normal numbers, rounded to the lattice with exactly the probability of each of its cells."""
        return rounded_normal(shape, source).double().mul_(self.grid)

    def draw_sum(self, coefficients: Tensor, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        """Normal numbers of standard deviation σ ‖coefficients‖: one draw has the law of the sum."""
        return self.draw(shape, source).mul_(torch.linalg.vector_norm(coefficients.double().cpu()))

    def cost(self, sensitivity: Tensor, entries: int) -> Cost:
        """(Δ/σ)², whatever the number of entries."""
        if not self.is_noisy:
            return Cost.unbounded(len(sensitivity))
        return Cost((sensitivity / self.std).square(), torch.zeros_like(sensitivity))

    def scaled(self, z: float, sensitivity: float) -> Gaussian:
        """z times its σ, or z times the sensitivity."""
        return replace(self, std=z * (self.std or sensitivity))
