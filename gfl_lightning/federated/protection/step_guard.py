"""DP-SGD in local steps: every sample's gradient bounded, Gaussian noise on their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.protection.clipping import clip_scale
from gfl_lightning.models.encoders.encoder import Weights


class PlainSteps:
    """g = Σ_s weight_s g_s: nothing is bounded and nothing added."""

    is_inert: bool = True

    def take(self, places: Tensor) -> PlainSteps:
        """The guard of some of the clients."""
        return self

    def loss_weight(self, batch_weight: Tensor, sample_weight: Tensor) -> Tensor:
        """What multiplies the residuals before anything is bounded ``[K, b]``."""
        return batch_weight

    def bounded(self, weight: Tensor, norm: Callable[[], Tensor], *factors: Tensor) -> tuple[Tensor, ...]:
        """Factors ``[K, b, …]`` of the gradients g_s, whose norms are ``norm() [K, b]``, as they may enter the sum."""
        return factors

    def noise(self, step: int, weights: Weights) -> Weights:
        """The noise in one local step, by weight ``[K, …]``; nothing where there is none."""
        return {}


@dataclass(frozen=True, eq=False)
class StepGuard(PlainSteps):
    """g = (1/b_k) (Σ_s min(1, C/‖g_s‖) g_s + z C ξ) for the K clients that train in a round.

    Args:
        bound: C.
        noise_multiplier: z.
        batch: expected batch size b_k of each of all training clients.
        places: places among them of the clients that train ``[K]``; ``None`` means all.
        seed: of the noise.
        round_number: of the round.
    """

    bound: float
    noise_multiplier: float
    batch: Tensor
    places: Tensor | None
    seed: int
    round_number: int

    is_inert = False

    def take(self, places: Tensor) -> StepGuard:
        """The guard of some of the clients."""
        return replace(self, places=places if self.places is None else self.places[places])

    def loss_weight(self, batch_weight: Tensor, sample_weight: Tensor) -> Tensor:
        """The weight of each sample's loss, which belongs to the gradient that is bounded."""
        return sample_weight

    def bounded(self, weight: Tensor, norm: Callable[[], Tensor], *factors: Tensor) -> tuple[Tensor, ...]:
        """Each times its sample's weight in the batch and min(1, C/‖g_s‖)."""
        counted = (weight * self.scale(norm()))[..., None]
        return tuple(factor * counted for factor in factors)

    def scale(self, norm: Tensor) -> Tensor:
        """min(1, C/‖g_s‖)."""
        return clip_scale(norm, self.bound)

    def noise(self, step: int, weights: Weights) -> Weights:
        """The noise z C ξ / b_k in one local step, by weight ``[K, …]``; nothing where z = 0."""
        if self.noise_multiplier == 0:
            return {}
        source = generator(self.seed, Stream.STEP_NOISE, self.round_number, step)
        noise = {}
        for name, weight in weights.items():
            std = (self.noise_multiplier * self.bound / self.batch).view(-1, *[1] * weight.ndim)
            draws = torch.randn(len(self.batch), *weight.shape, generator=source, dtype=weight.dtype).to(weight) * std
            noise[name] = draws if self.places is None else draws[self.places]
        return noise
