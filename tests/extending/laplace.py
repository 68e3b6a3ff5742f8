"""A noise mechanism from outside the package: Laplace noise, which is private with δ = 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.privacy.mechanisms.mechanism import Cost, Mechanism


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
    def is_noisy(self) -> bool:
        """Whether b > 0."""
        return self.scale > 0

    def draw(self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """The difference of two exponential numbers of mean b."""
        first, second = (torch.empty(shape, dtype=dtype).exponential_(generator=generator) for _ in range(2))
        return self.scale * (first - second)

    def cost(self, sensitivity: Tensor, entries: int) -> Cost:
        """√n Δ / b, purely."""
        if not self.is_noisy:
            return Cost.unbounded(len(sensitivity))
        return Cost(torch.zeros_like(sensitivity), math.sqrt(entries) * sensitivity / self.scale)

    def scaled(self, z: float, sensitivity: float) -> Laplace:
        """z times its b, or z times the sensitivity."""
        return replace(self, scale=z * (self.scale or sensitivity))
