"""The paper's server: the average itself."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.federated.server.optimizer import ServerOptimizer, ServerState
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True)
class Average(ServerOptimizer):
    """W̄ ← W̃.

    >>> Average().step({}, {}, {})
    ({}, {})
    """

    def step(self, weights: Weights, average: Weights, state: ServerState) -> tuple[Weights, ServerState]:
        """Take the average."""
        return average, {}
