"""DP-SGD in local steps: every sample's gradient bounded, Gaussian noise on their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.federated.protection.clipping import clip_scale
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.exact_normal import FINENESS, rounded_normal
from gfl_lightning.privacy.lattice import on_lattice
from gfl_lightning.privacy.noise_source import NoiseSource


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

    def finite(self, factor: Tensor) -> Tensor:
        """What multiplies a bounded factor, such that a sample that is left out contributes nothing."""
        return factor

    def exactly(self, factor: Tensor) -> Tensor:
        """What is multiplied and added up in a step, in the precision that the sum needs."""
        return factor

    def gathers(self, models: Weights, lr: float) -> tuple[Weights, float]:
        """Where a step's gradients are added up, by weight ``[K, …]``, and with which factor: the models themselves."""
        return models, -lr

    def move(self, step: int, models: Weights, gathered: Weights, lr: float) -> None:
        """Move the models by what was gathered, in place: done already."""

    def noisy(self, step: int, gradient: Weights) -> Weights:
        """The gradients of one local step by weight ``[K, …]`` as steps are taken along them."""
        return gradient


@dataclass(frozen=True, eq=False)
class StepGuard(PlainSteps):
    """g = (1/b_k) (Σ_s min(1, C/‖g_s‖) g_s + z C ξ) for the K clients that train in a round.

    Args:
        bound: C.
        noise_multiplier: z.
        batch: expected batch size b_k of each of all training clients.
        places: places among them of the clients that train ``[K]``; ``None`` means all.
        draws: the source of the noise in each step.
    """

    bound: float
    noise_multiplier: float
    batch: Tensor
    places: Tensor | None
    draws: Callable[[int], NoiseSource]

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
        return tuple(torch.where(counted > 0, factor * counted, 0) for factor in factors)

    def finite(self, factor: Tensor) -> Tensor:
        """0 in place of what is not finite: such a sample's gradient has no norm and does not enter the sum."""
        return torch.nan_to_num(factor, 0.0, 0.0, 0.0)

    def scale(self, norm: Tensor) -> Tensor:
        """min(1, C/‖g_s‖)."""
        return clip_scale(norm, self.bound)

    def exactly(self, factor: Tensor) -> Tensor:
        """In double precision: a sum must not round by more than one of its many samples moves it."""
        return factor.double()

    def gathers(self, models: Weights, lr: float) -> tuple[Weights, float]:
        """The sum by itself, as noise must be added to it before anything else is."""
        return {name: torch.zeros_like(model, dtype=torch.float64) for name, model in models.items()}, 1.0

    def move(self, step: int, models: Weights, gathered: Weights, lr: float) -> None:
        """A step along the noisy sum."""
        for name, gradient in self.noisy(step, gathered).items():
            models[name].sub_(gradient.to(models[name]), alpha=lr)

    def noisy(self, step: int, gradient: Weights) -> Weights:
        """Sum and noise z C ξ / b_k of each client, both on the client's lattice."""
        if self.noise_multiplier == 0:
            return gradient
        source, std = self.draws(step), (self.noise_multiplier * self.bound / self.batch).double()
        grid = std * 2.0**-FINENESS
        made = {}
        for name, part in gradient.items():
            draws = rounded_normal((len(std), *part.shape[1:]), source).to(std)
            steps = grid.view(-1, *[1] * (part.ndim - 1))
            noise = draws * steps
            if self.places is not None:
                noise, steps = noise[self.places], steps[self.places]
            made[name] = on_lattice(part, noise, steps)
        return made
