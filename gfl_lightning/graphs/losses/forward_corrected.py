"""Cross-entropy of classes that were randomised in a known way: the likelihood of the answer, not of the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy


@dataclass(frozen=True)
class ForwardCorrected(CrossEntropy):
    """ℓ = −log Σ_i ŷ_i P(ỹ | i) with P(ỹ | i) = (1 − β) 1{ỹ = i} + β/c, so that r = ŷ − ŷ ⊙ t / (ŷ · t).

    t is the column of P(ỹ | ·) of an answer ỹ, and ŷ ⊙ t / (ŷ · t) what the model believes of the truth once it has
    seen ỹ. The minimum over all ŷ is at the true probabilities, as that of cross-entropy with true labels is. It is
    the loss of every split; outputs still predict the truth, ŷ = softmax(z), and accuracy is agreement with the labels
    at hand.

    >>> loss = ForwardCorrected(flip=0.5)
    >>> loss.targets(torch.tensor([1]), 2, torch.float32)
    tensor([[0.2500, 0.7500]])
    >>> ForwardCorrected(flip=0.0).residual(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    tensor([[ 0.5000, -0.5000]])

    Args:
        flip: β, the probability with which a label was replaced by one drawn uniformly from all classes.
    """

    flip: float = 0.0

    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(0 <= self.flip < 1, "flip", "lie in [0, 1)", self.flip)

    def of_truth(self, agreement: float, outputs: int) -> float:
        """The accuracy by true labels, on average, of an agreement with answers: (agreement − β/c) / (1 − β).

        >>> ForwardCorrected(flip=0.5).of_truth(0.75, 2)
        1.0
        """
        return (agreement - self.flip / outputs) / (1 - self.flip)

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype) -> Tensor:
        """t."""
        return super().targets(y, outputs, dtype) * (1 - self.flip) + self.flip / outputs

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """ŷ − ŷ ⊙ t / (ŷ · t), the second term a softmax of z + log t."""
        return torch.softmax(z, dim=-1) - torch.softmax(z + target.log(), dim=-1)

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """−log ŷ · t."""
        t = self.targets(y, z.shape[1], z.dtype)
        return -torch.logsumexp(torch.log_softmax(z, dim=-1) + t.log(), dim=-1)
