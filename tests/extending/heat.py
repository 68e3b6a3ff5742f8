"""An aggregator from outside the package: the heat kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.models.aggregators.aggregator import Aggregator


@dataclass(frozen=True)
class Heat(Aggregator):
    """Ã = e^{−t(I−P)} ≈ e^{−t} Σ_{i≤M} t^i/i! P^i.

    Args:
        t: for how long heat spreads.
        M: where the series ends.
    """

    t: float = 1.0
    M: int = 10

    def __post_init__(self) -> None:
        require(self.t > 0, "t", "be positive", self.t)
        require_count("M", self.M)

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[M+1]``."""
        terms = [math.exp(-self.t) * self.t**i / math.factorial(i) for i in range(self.M + 1)]
        return torch.tensor(terms, dtype=torch.float64)
