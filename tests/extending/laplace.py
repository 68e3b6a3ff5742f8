"""A noise mechanism from outside the package: Laplace noise, which is private with δ = 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.privacy.mechanisms.mechanism import Cost, Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource


@dataclass(frozen=True)
class Laplace(Mechanism):
    """u ↦ u · min(1, C/‖u‖) + Laplace(b) on every entry.

    A unit that moves u by Δ in Euclidean norm moves it by at most √n Δ in the sum of its n entries: ε = √n Δ / b.

    Args:
        scale: b.
        clip: C, the bound on the Euclidean norm; infinite means none.
    """

    scale: float = 0.0
    clip: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.scale < math.inf, "scale", "be finite and at least 0", self.scale)

    @property
    def spread(self) -> float:
        """b."""
        return self.scale

    def draw(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        """The difference of two exponential numbers of mean b, which are −b ln u."""
        return self.scale * (source.uniform(shape).log() - source.uniform(shape).log())

    def cost(self, sensitivity: Tensor, entries: int) -> Cost:
        """√n Δ / b, purely."""
        if not self.is_noisy:
            return Cost.unbounded(len(sensitivity))
        return Cost(torch.zeros_like(sensitivity), math.sqrt(entries) * sensitivity / self.scale)

    def scaled(self, z: float, sensitivity: float) -> Laplace:
        """z times its b, or z times the sensitivity."""
        return replace(self, scale=z * (self.scale or sensitivity))
