"""Personalised PageRank, the paper's aggregator."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.models.aggregators.aggregator import MOST_HOPS, Aggregator


@dataclass(frozen=True)
class APPNP(Aggregator):
    """γ_i = α(1−α)^i for i < M and γ_M = (1−α)^M; they sum to 1.

    >>> APPNP(alpha=0.5, M=2).gamma.tolist()
    [0.5, 0.25, 0.25]

    Args:
        alpha: teleport probability α.
        M: propagation steps.
    """

    alpha: float = 0.1
    M: int = 10

    def __post_init__(self) -> None:
        require(0 < self.alpha <= 1, "alpha", "lie in (0, 1]", self.alpha)
        require_count("M", self.M, most=MOST_HOPS)

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[M+1]``."""
        powers = (1 - self.alpha) ** torch.arange(self.M + 1, dtype=torch.float64)
        return torch.cat([self.alpha * powers[:-1], powers[-1:]])
