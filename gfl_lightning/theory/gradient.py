"""‖∇F(W)‖²: how far the shared model is from a stationary point, the left side of the convergence bound."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.encoders.encoder import Weights


def objective(graph: ClientGraph, logits: Tensor) -> Tensor:
    """F = (1/K) Σ_k (1/n_k) Σ_s ℓ(y_{k,s}, logits_{k,s}) from the logits of all samples ``[S, c]``.

    K counts the clients that own training samples and n_k those samples; a sample's loss has the graph's weight.
    """
    rows = graph.mask(Split.TRAIN).nonzero().flatten()
    n = graph.counts(rows)[graph.client[rows]]
    return (graph.losses(logits[rows], rows) / n).sum() / len(graph.training_clients)


def gradient(federation: Federation, weights: Weights) -> Weights:
    """∇F(W), where the logits Ã_kk h_{k,s}(W) + Σ_{j≠k} Ã_kj ĥ_j(W) take every representation at W: none is stale.

    A learnable aggregator's γ is part of W.
    """
    with torch.enable_grad():
        W = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
        loss = objective(federation.graph, federation.logits_of(W))
        return dict(zip(W, torch.autograd.grad(loss, list(W.values())), strict=True))


def gradient_norm_squared(federation: Federation, weights: Weights) -> float:
    """‖∇F(W)‖²."""
    return sum(float(g.double().square().sum()) for g in gradient(federation, weights).values())
