"""A linear layer of each client's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.models.personal.personal import Personal, ones, require_strength


@dataclass(frozen=True)
class OwnSlopes(Personal):
    """z_{k,s} gets b_k + U_k x_{k,s}, held to 0: random slopes; for a linear encoder, a last layer per client.

    >>> OwnSlopes(level=2.0, slopes=9.0).strengths(3)
    (2.0, 9.0, 9.0, 9.0)

    Args:
        level: λ of b_k.
        slopes: λ of every column of U_k.
    """

    level: float = 5.0
    slopes: float = 20.0

    def __post_init__(self) -> None:
        require_strength("level", self.level)
        require_strength("slopes", self.slopes)

    def features(self, x: Tensor) -> Tensor:
        """φ = (1, x)."""
        return torch.cat([ones(x), x], 1)

    def strengths(self, num_features: int) -> tuple[float, ...]:
        """One for the level, then one for each feature."""
        return (self.level, *[self.slopes] * num_features)
