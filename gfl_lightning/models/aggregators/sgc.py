"""A power of P (SGC)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require_count
from gfl_lightning.models.aggregators.aggregator import MOST_HOPS, Aggregator


@dataclass(frozen=True)
class SGC(Aggregator):
    """Z = P^k H: γ_k = 1 and the rest 0.

    >>> SGC(k=2).gamma.tolist()
    [0.0, 0.0, 1.0]

    Args:
        k: the power.
    """

    k: int = 2

    def __post_init__(self) -> None:
        require_count("k", self.k, most=MOST_HOPS)

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[k+1]``."""
        gamma = torch.zeros(self.k + 1, dtype=torch.float64)
        gamma[self.k] = 1
        return gamma
