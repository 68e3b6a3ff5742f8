"""Step 1 of a round: the server turns the average W̃ of the clients' models into the next W̄."""

from __future__ import annotations

import torch

from gfl_lightning.federated.options import Server
from gfl_lightning.models.encoders.encoder import Weights

Moments = dict[str, Weights]


def server_step(server: Server, weights: Weights, average: Weights, moments: Moments) -> tuple[Weights, Moments]:
    """Next W̄ and the optimizer's memory.

    ``average``: W̄ ← W̃. With Δ = W̃ − W̄ as minus a gradient, ``momentum``: m ← β m + Δ, W̄ ← W̄ + η_s m; ``adam``:
    m ← β₁ m + (1−β₁) Δ, v ← β₂ v + (1−β₂) Δ², W̄ ← W̄ + η_s m / (√v + τ), without bias correction as in FedAdam.
    """
    if server.optimizer == "average":
        return average, {}
    delta = {name: average[name] - weight for name, weight in weights.items()}
    zero = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    if server.optimizer == "momentum":
        m = {name: server.momentum * old + delta[name] for name, old in moments.get("m", zero).items()}
        return {name: weight + server.lr * m[name] for name, weight in weights.items()}, {"m": m}
    beta1, beta2 = server.momentum, server.beta2
    m = {name: beta1 * old + (1 - beta1) * delta[name] for name, old in moments.get("m", zero).items()}
    v = {name: beta2 * old + (1 - beta2) * delta[name] ** 2 for name, old in moments.get("v", zero).items()}
    step = {name: server.lr * m[name] / (v[name].sqrt() + server.tau) for name in weights}
    return {name: weight + step[name] for name, weight in weights.items()}, {"m": m, "v": v}
