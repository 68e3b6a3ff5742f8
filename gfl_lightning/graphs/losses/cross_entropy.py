"""Classes: cross-entropy behind a softmax, the paper's loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.graphs import validation
from gfl_lightning.graphs.losses.loss import Loss


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """ℓ = −log ŷ_y with ŷ = softmax(z), so that r = ŷ − y.

    >>> CrossEntropy().residual(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    tensor([[ 0.5000, -0.5000]])
    """

    def check(self, y: Tensor, unused: Tensor, outputs: int) -> None:
        """Labels lie in 0 … c − 1."""
        validation.check_labels(y, unused, outputs)

    def fitted(self, y: Tensor) -> CrossEntropy:
        """Nothing to fit."""
        return self

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype) -> Tensor:
        """0/1 vectors."""
        return F.one_hot(y, outputs).to(dtype)

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """ŷ − y."""
        return torch.softmax(z, dim=-1).sub_(target)

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """−log ŷ_y."""
        return F.cross_entropy(z, y, reduction="none")

    def link(self, z: Tensor) -> Tensor:
        """ŷ."""
        return torch.softmax(z, dim=-1)

    def unlink(self, predicted: Tensor) -> Tensor:
        """log ŷ."""
        return predicted.clamp_min(torch.finfo(predicted.dtype).tiny).log()

    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """1 where the largest output is the label's."""
        return z.argmax(1).eq(y)

    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """diag(ŷ) − ŷ ŷᵀ."""
        p = self.link(z)
        return torch.diag_embed(p) - p[..., None] * p[..., None, :]
