"""No neighbourhood at all: plain federated learning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.models.aggregators.aggregator import Aggregator


@dataclass(frozen=True)
class Identity(Aggregator):
    """Z = H, γ = (1): FedAvg, or FedMLP with the paper's encoder.

    >>> Identity().isolates
    True
    """

    @property
    def gamma(self) -> Tensor:
        """Coefficients ``[1]``."""
        return torch.ones(1, dtype=torch.float64)
