"""The contract of a loss ℓ(y, z) of a sample's label y and the model's outputs z.

A round needs only its residual r = ∂ℓ/∂z: the gradient of client k is Σ_s (Ã_kk J_s + ∇C_k)ᵀ r_s whatever ℓ is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Loss(ABC):
    """What is lost on a sample, what it makes of labels, and what the outputs z predict.

    A subclass is a frozen dataclass of its options. Labels are classes, ``int64``, or numbers, ``float64``.

    >>> from dataclasses import dataclass
    >>> from gfl_lightning.graphs.losses.numbers import NumberLoss
    >>> @dataclass(frozen=True)
    ... class LogCosh(NumberLoss):
    ...     def residual(self, z: Tensor, target: Tensor) -> Tensor:
    ...         return torch.tanh(z - target)
    ...
    ...     def of_targets(self, z: Tensor, target: Tensor) -> Tensor:
    ...         return torch.log(torch.cosh(z - target))
    >>> LogCosh(centre=5.0, scale=2.0).link(torch.tensor([[1.0]]))
    tensor([[7.]])
    """

    of_numbers: ClassVar[bool] = False
    """Whether labels are numbers instead of classes."""

    randomised: ClassVar[bool] = False
    """Whether labels are answers of a random mechanism, so that by chance there may be none of some class."""

    @property
    def unknown(self) -> float:
        """What stands for a label that is not known: −1 among classes, nan among numbers."""
        return torch.nan if self.of_numbers else -1

    @property
    def label_type(self) -> torch.dtype:
        """Type of the column of labels."""
        return torch.float64 if self.of_numbers else torch.int64

    @abstractmethod
    def check(self, y: Tensor, unused: Tensor, outputs: int) -> None:
        """Refuse labels ``[samples]``, unknown only where ``unused``, or a number of outputs c that do not fit."""

    @abstractmethod
    def fitted(self, y: Tensor) -> Loss:
        """The loss on the scale of some training labels; itself where there is nothing to fit."""

    @abstractmethod
    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype) -> Tensor:
        """What local steps keep of labels, ``[…] → […, c]``."""

    @abstractmethod
    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """r = ∂ℓ/∂z of outputs and targets ``[…, c]``, in new memory; under `torch.func.vmap` too."""

    @abstractmethod
    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """ℓ of samples with outputs ``z [n, c]`` and labels ``y [n]``; differentiable in z."""

    @abstractmethod
    def link(self, z: Tensor) -> Tensor:
        """What outputs predict, ``[…, c]``: the probabilities of classes, or a number in the user's units."""

    @abstractmethod
    def unlink(self, predicted: Tensor) -> Tensor:
        """Outputs z that predict this, ``[…, c]``."""

    @abstractmethod
    def score(self, z: Tensor, y: Tensor) -> Tensor:
        """What is counted beside the loss, ``[n]``: whether a class is right, or the absolute error of a number."""

    @abstractmethod
    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """∂²ℓ/∂z² of outputs and targets ``[…, c, c]``, positive semi-definite: what Newton's method needs."""
