"""σ_H²: what training against representations of the last exchange does to a client's gradient.

Within a round client k stands at W_k while C_k = Σ_{j≠k} Ã_kj ĥ_j and ∇C_k are still those at W̄. With all its training
samples it would step along
    g_k = mean_s w_s (Ã_kk J_{k,s}(W_k) + ∇C_k(W̄))ᵀ r(Ã_kk h_{k,s}(W_k) + C_k(W̄), y_s)      (V1: no ∇C_k)
with w_s the weight of a sample's loss and r its residual, ŷ − y, where the gradient of its loss, everyone's
representation taken at W_k, is ∇F_k(W_k).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.client_models import client_models
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True)
class Staleness:
    """Means over the K clients that train, where each stands after some local steps.

    Args:
        representation: (1/K) Σ_k ‖C_k(W̄) − C_k(W_k)‖².
        gradient: (1/K) Σ_k ‖g_k − ∇F_k(W_k)‖², the bound's σ_H².
    """

    representation: float
    gradient: float


def staleness(
    federation: Federation, state: FederationState, lr: float | None = None, steps: int | None = None
) -> Staleness:
    """Staleness after ``steps`` local steps (all I by default) of the round that starts from a state.

    It repeats the local steps of that round and looks at one client after another. Before the first step nothing is
    stale; the last gradient of a round is taken after I − 1.
    """
    require(
        federation.schedule.everyone_shares and not federation.aggregator.learnable and federation.protection.is_inert,
        "federation",
        "share all representations, unprotected, over a fixed aggregator, for staleness to be that of one round",
        (federation.participation, federation.aggregator, federation.protection),
    )
    graph = federation.graph
    models = client_models(federation, state, lr, steps)
    own = federation.propagation.diagonal(models.clients)
    train = graph.mask(Split.TRAIN)
    representation = gradient = 0.0
    for place, client in enumerate(models.clients.tolist()):
        rows = ((graph.client == client) & train).nonzero().flatten()
        W = {name: stacked[place] for name, stacked in models.weights.items()}
        moved, off = _client_error(federation, state.weights, W, rows, own[place])
        representation += moved
        gradient += off
    return Staleness(representation / len(models.clients), gradient / len(models.clients))


@torch.enable_grad()
def _client_error(
    federation: Federation, average: Weights, now: Weights, rows: Tensor, own: Tensor
) -> tuple[float, float]:
    """‖C_k(W̄) − C_k(W_k)‖² and ‖g_k − ∇F_k(W_k)‖² of the client that owns the training samples ``rows``."""
    graph = federation.graph
    x, target = graph.x[rows], graph.loss.targets(graph.y[rows], graph.num_classes, graph.x.dtype)
    then, W = _leaves(average), _leaves(now)
    h = federation.encoder(W, x)
    logits, then_logits = federation.logits_of(W)[rows], federation.logits_of(then)[rows]
    C, then_C = (logits - own * h)[0], (then_logits - own * federation.encoder(then, x))[0]
    exact = torch.autograd.grad(graph.losses(logits, rows).mean(), list(W.values()), retain_graph=True)
    if federation.estimator == "exact":
        estimate = exact
    else:
        r = graph.loss.residual((own * h + then_C).detach(), target)
        r *= graph.weight[rows, None] / len(rows)
        estimate = torch.autograd.grad(h, list(W.values()), own * r)
        if federation.estimator == "compensated":
            compensation = torch.autograd.grad(then_C, list(then.values()), r.sum(0))
            estimate = tuple(g + more for g, more in zip(estimate, compensation, strict=True))
    off = sum(float((a - b).double().square().sum()) for a, b in zip(estimate, exact, strict=True))
    return float((then_C - C).detach().double().square().sum()), off


def _leaves(weights: Weights) -> Weights:
    return {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
