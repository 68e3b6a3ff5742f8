"""An encoder from outside the package: three layers with GELU."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.checks import require_count
from gfl_lightning.models.encoders.encoder import Encoder, Shapes, Weights


@dataclass(frozen=True)
class DeepGELU(Encoder):
    """h = C gelu(B gelu(A x)).

    Args:
        width: of both hidden layers.
    """

    width: int = 16

    def __post_init__(self) -> None:
        require_count("width", self.width)

    def shapes(self, num_features: int, num_classes: int) -> Shapes:
        """A, B and C."""
        return {"A": (self.width, num_features), "B": (self.width, self.width), "C": (num_classes, self.width)}

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """Layer by layer."""
        for name in ("A", "B"):
            x = F.gelu(F.linear(x, weights[name]))
        return F.linear(x, weights["C"])
