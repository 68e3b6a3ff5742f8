"""A gate of each client's own between its own term and its neighbours'."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.models.personal.personal import Personal, ones, require_strength
from gfl_lightning.models.personal.shared import Shared


@dataclass(frozen=True)
class Gate(Personal):
    """z_{k,s} = g_k (Ã_kk h_{k,s} + C_k) + (1 − g_k) h_{k,s} + b_k with g_k in [0, 1], held to 1.

    g_k = 1 is the graph as it stands, g_k = 0 a client that listens to nobody.

    >>> Gate(strength=3.0, level=math.inf).strengths(10)
    ()

    Args:
        strength: λ of g_k − 1.
        level: λ of b_k; infinite for none.
    """

    strength: float = 1.0
    level: float = 5.0

    def __post_init__(self) -> None:
        require_strength("strength", self.strength)
        require_strength("level", self.level, infinite=True)

    @property
    def gate_strength(self) -> float:
        """λ."""
        return self.strength

    @property
    def ungated(self) -> Personal:
        """Its level."""
        return OwnLevel(self.level) if math.isfinite(self.level) else Shared()

    def features(self, x: Tensor) -> Tensor:
        """φ = 1, or none."""
        return ones(x) if math.isfinite(self.level) else x[:, :0]

    def strengths(self, num_features: int) -> tuple[float, ...]:
        """That of the level."""
        return (self.level,) if math.isfinite(self.level) else ()
