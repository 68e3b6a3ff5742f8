"""Server momentum (FedAvgM)."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import require, require_rate
from gfl_lightning.federated.server.optimizer import ServerOptimizer, ServerState, difference, zeros
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """m ← β m + Δ, W̄ ← W̄ + η_s m.

    >>> import torch
    >>> W, _ = Momentum(lr=0.5).step({"W": torch.zeros(1)}, {"W": torch.ones(1)}, {})
    >>> W["W"].tolist()
    [0.5]

    Args:
        lr: the server's rate η_s.
        beta: β.
    """

    lr: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        require_rate("server lr", self.lr)
        require(0 <= self.beta < 1, "beta", "lie in [0, 1)", self.beta)

    def step(self, weights: Weights, average: Weights, state: ServerState) -> tuple[Weights, ServerState]:
        """One step along the accumulated difference."""
        delta = difference(weights, average)
        m = {name: self.beta * old + delta[name] for name, old in (state.get("m") or zeros(weights)).items()}
        return {name: weight + self.lr * m[name] for name, weight in weights.items()}, {"m": m}
