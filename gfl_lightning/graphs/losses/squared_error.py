"""Numbers: squared error."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.graphs.losses.numbers import NumberLoss


@dataclass(frozen=True)
class SquaredError(NumberLoss):
    """ℓ = ½ (z − t)², so that r = z − t, with t = (y − centre) / scale; tables fit centre and scale.

    >>> import torch
    >>> loss = SquaredError().fitted(torch.tensor([10.0, 30.0]))
    >>> loss, loss.losses(torch.zeros(1, 1), torch.tensor([30.0]))
    (SquaredError(centre=20.0, scale=10.0), tensor([0.5000]))

    Args:
        centre: of the labels; the mean of the training labels once fitted.
        scale: their spread; the deviation of the training labels once fitted.
    """

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """z − t."""
        return z - target

    def of_targets(self, z: Tensor, target: Tensor) -> Tensor:
        """½ (z − t)²."""
        return 0.5 * (z - target).square()
