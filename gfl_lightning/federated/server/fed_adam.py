"""FedAdam: an adaptive server."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import require, require_rate
from gfl_lightning.federated.server.optimizer import ServerOptimizer, ServerState, difference, zeros
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True)
class FedAdam(ServerOptimizer):
    """m ← β₁ m + (1−β₁) Δ, v ← β₂ v + (1−β₂) Δ², W̄ ← W̄ + η_s m / (√v + τ), without bias correction.

    >>> import torch
    >>> W, state = FedAdam(lr=0.1).step({"W": torch.zeros(1)}, {"W": torch.ones(1)}, {})
    >>> sorted(state)
    ['m', 'v']

    Args:
        lr: the server's rate η_s.
        beta1: β₁.
        beta2: β₂.
        tau: τ, the adaptivity floor.
    """

    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        require_rate("server lr", self.lr)
        require(0 <= self.beta1 < 1, "beta1", "lie in [0, 1)", self.beta1)
        require(0 <= self.beta2 < 1, "beta2", "lie in [0, 1)", self.beta2)
        require(self.tau > 0, "tau", "be positive", self.tau)

    def step(self, weights: Weights, average: Weights, state: ServerState) -> tuple[Weights, ServerState]:
        """One adaptive step along the difference."""
        delta, b1, b2 = difference(weights, average), self.beta1, self.beta2
        m = {name: b1 * old + (1 - b1) * delta[name] for name, old in (state.get("m") or zeros(weights)).items()}
        v = {name: b2 * old + (1 - b2) * delta[name] ** 2 for name, old in (state.get("v") or zeros(weights)).items()}
        step = {name: self.lr * m[name] / (v[name].sqrt() + self.tau) for name in weights}
        return {name: weight + step[name] for name, weight in weights.items()}, {"m": m, "v": v}
