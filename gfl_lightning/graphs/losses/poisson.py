"""Counts: Poisson's loss behind an exponential."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.numbers import NumberLoss


@dataclass(frozen=True)
class Poisson(NumberLoss):
    """ℓ = e^z − t − t (z − log t), half the deviance of t = y / scale, so that r = e^z − t; z predicts scale e^z.

    >>> loss = Poisson().fitted(torch.tensor([1.0, 3.0]))
    >>> loss, loss.link(torch.zeros(1, 1))
    (Poisson(centre=0.0, scale=2.0), tensor([[2.]]))

    Args:
        centre: 0, as counts start there.
        scale: the mean of the training labels once fitted.
    """

    least: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.centre == 0, "centre", "be 0 for Poisson, as counts start there", self.centre)

    def check(self, y: Tensor, unused: Tensor, outputs: int) -> None:
        """Labels are at least 0."""
        super().check(y, unused, outputs)
        require(not bool((y < 0).any()), "y", "be at least 0 for Poisson", y[y < 0][:3].tolist())

    def fitted(self, y: Tensor) -> Poisson:
        """The scale becomes the mean."""
        return replace(self, scale=float(y.mean()) or 1.0)

    def within(self, low: float, high: float) -> Poisson:
        """The scale becomes the middle of the range, which must be positive."""
        return replace(self, scale=(low + high) / 2)

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """e^z − t."""
        return torch.exp(z) - target

    def of_targets(self, z: Tensor, target: Tensor) -> Tensor:
        """Half the deviance."""
        return torch.exp(z) - target - target * z + torch.xlogy(target, target)

    def link(self, z: Tensor) -> Tensor:
        """scale e^z."""
        return self.scale * torch.exp(z)

    def unlink(self, predicted: Tensor) -> Tensor:
        """log (ŷ / scale)."""
        return (predicted / self.scale).clamp_min(torch.finfo(predicted.dtype).tiny).log()

    def spread(self, predicted: Tensor) -> Tensor:
        """√ŷ."""
        return predicted.sqrt()

    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """e^z."""
        return torch.exp(z)[..., None]
