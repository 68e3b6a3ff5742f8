"""A mechanism that is not the package's: Laplace noise, purely private in the ℓ1 norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.privacy.mechanisms.mechanism import Cost, Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource


@dataclass(frozen=True)
class Laplace(Mechanism):
    """u ↦ u · min(1, C/‖u‖₂) + Laplace(0, b) on every entry: ε = √q Δ₂ / b ≥ Δ₁ / b for q entries.

    Args:
        scale: b.
        clip: C.
    """

    scale: float = 0.0
    clip: float = math.inf

    @property
    def spread(self) -> float:
        return self.scale

    def draw(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        u = source.uniform(shape) - 0.5
        return -self.scale * u.sign() * torch.log1p(-2 * u.abs().clamp_max(0.5 - 2**-54))

    def cost(self, sensitivity: Tensor, entries: int) -> Cost:
        if not self.is_noisy:
            return Cost.unbounded(len(sensitivity))
        return Cost(torch.zeros_like(sensitivity), math.sqrt(entries) * sensitivity / self.scale)


@dataclass(frozen=True)
class ScalableLaplace(Laplace):
    """The same where the noise may be calibrated."""

    def scaled(self, z: float, sensitivity: float) -> Laplace:
        return replace(self, scale=z * (self.scale or sensitivity))


@dataclass(frozen=True)
class Unaccounted(Laplace):
    """The same noise, of whose cost nobody knows anything."""

    def cost(self, sensitivity: Tensor, entries: int) -> Cost:
        return Mechanism.cost(self, sensitivity, entries)
