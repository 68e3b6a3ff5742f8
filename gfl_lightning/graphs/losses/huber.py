"""Numbers: Huber's loss, for labels of which some are far off."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.numbers import NumberLoss


@dataclass(frozen=True)
class Huber(NumberLoss):
    """ℓ = ½ (z − t)² up to |z − t| = δ and linear beyond, so that r = z − t, cut off at ±δ.

    >>> import torch
    >>> Huber(delta=1.0).residual(torch.tensor([[5.0]]), torch.tensor([[0.5]]))
    tensor([[1.]])

    Args:
        centre: of the labels; the mean of the training labels once fitted.
        scale: their spread; the deviation of the training labels once fitted.
        delta: δ, in deviations of the labels.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.delta < math.inf, "delta", "be positive and finite", self.delta)

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """z − t between −δ and δ."""
        return (z - target).clamp(-self.delta, self.delta)

    def of_targets(self, z: Tensor, target: Tensor) -> Tensor:
        """Quadratic near 0, linear beyond δ."""
        return F.huber_loss(z, target, reduction="none", delta=self.delta)

    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """1 near 0 and 0 beyond δ."""
        return ((z - target).abs() <= self.delta).to(z.dtype)[..., None]
