"""What losses of numbers have in common: one output z, on a scale on which training labels are near 0 and 1 apart."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.loss import Loss


@dataclass(frozen=True)
class NumberLoss(Loss):
    """ℓ(t, z) of t = (y − centre) / scale; z predicts centre + scale z.

    Args:
        centre: of the labels; the mean of the training labels once fitted.
        scale: their spread; the deviation of the training labels once fitted.
    """

    centre: float = 0.0
    scale: float = 1.0

    of_numbers: ClassVar[bool] = True
    least: ClassVar[float] = -math.inf
    """The least number that a label can be."""

    def __post_init__(self) -> None:
        require(math.isfinite(self.centre), "centre", "be finite", self.centre)
        require(0 < self.scale < math.inf, "scale", "be positive and finite", self.scale)

    @abstractmethod
    def of_targets(self, z: Tensor, target: Tensor) -> Tensor:
        """ℓ(t, z), entry by entry."""

    def check(self, y: Tensor, unused: Tensor, outputs: int) -> None:
        """Labels are finite, or nan where they are unknown; there is one output."""
        require(outputs == 1, "num_classes", f"be 1 for {type(self).__name__}, whose labels are numbers", outputs)
        wrong = ~(y.isfinite() | (y.isnan() & unused))
        require(not bool(wrong.any()), "y", "be finite (nan only where split is NONE)", y[wrong][:3].tolist())

    def fitted(self, y: Tensor) -> NumberLoss:
        """Centre and scale become mean and deviation of the labels; a scale of 1 where all are the same."""
        centre, spread = float(y.mean()), float(y.std(correction=0))
        return replace(self, centre=centre, scale=spread if spread > 1e-12 * max(1.0, abs(centre)) else 1.0)

    def within(self, low: float, high: float) -> NumberLoss:
        """Centre and scale become mean and deviation of labels spread evenly over a range."""
        return replace(self, centre=(low + high) / 2, scale=(high - low) / math.sqrt(12))

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype) -> Tensor:
        """t."""
        return ((y - self.centre) / self.scale).to(dtype)[..., None]

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """ℓ(t, z)."""
        return self.of_targets(z[..., 0], self.targets(y, 1, z.dtype)[..., 0])

    def link(self, z: Tensor) -> Tensor:
        """centre + scale z."""
        return self.centre + self.scale * z

    def unlink(self, predicted: Tensor) -> Tensor:
        """(ŷ − centre) / scale."""
        return (predicted - self.centre) / self.scale

    def spread(self, predicted: Tensor) -> Tensor:
        """How far apart labels of samples with some prediction are, up to a factor."""
        return torch.ones_like(predicted)

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """|ŷ − y|."""
        return (self.link(z.double())[..., 0] - y).abs()

    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """1, that of the squared error."""
        return torch.ones_like(z)[..., None]
