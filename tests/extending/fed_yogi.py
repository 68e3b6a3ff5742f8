"""A server optimizer from outside the package: FedYogi."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import require_rate
from gfl_lightning.federated.server.optimizer import ServerOptimizer, ServerState, difference, zeros
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True)
class FedYogi(ServerOptimizer):
    """m ← β₁ m + (1−β₁) Δ, v ← v − (1−β₂) Δ² sign(v − Δ²), W̄ ← W̄ + η_s m / (√v + τ).

    Args:
        lr: η_s.
        beta1: β₁.
        beta2: β₂.
        tau: τ.
    """

    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        require_rate("server lr", self.lr)

    def step(self, weights: Weights, average: Weights, state: ServerState) -> tuple[Weights, ServerState]:
        """One adaptive step along the difference."""
        m, v, after = state.get("m") or zeros(weights), state.get("v") or zeros(weights), {}
        for name, delta in difference(weights, average).items():
            m = {**m, name: self.beta1 * m[name] + (1 - self.beta1) * delta}
            v = {**v, name: v[name] - (1 - self.beta2) * delta**2 * (v[name] - delta**2).sign()}
            after[name] = weights[name] + self.lr * m[name] / (v[name].sqrt() + self.tau)
        return after, {"m": m, "v": v}
