"""After training, each client mixes several models by its own validation samples; nothing about it is uploaded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split

STRENGTH, STEPS = 5.0, 300


def mixed(graph: ClientGraph, predictions: Sequence[Tensor], strength: float = STRENGTH) -> Tensor:
    """p_{k,s} = Σ_j w_kj p_{j,s} of every sample ``[S, c]``, from J predictions ``[S, c]``, the first as the prior."""
    weights = mixing_weights(graph, predictions, strength)
    owner = graph.client.cpu()
    return sum((weights[owner, j, None] * one.double() for j, one in enumerate(predictions)), torch.zeros(1))


def mixing_weights(graph: ClientGraph, predictions: Sequence[Tensor], strength: float = STRENGTH) -> Tensor:
    """w_k, the maximum over the simplex of Σ_s log Σ_j w_kj q_{j,s} + λ log w_k1 over client k's validation samples.

    q is the probability of the true label, or of a number the normal density about what is predicted, as wide as the
    first model's errors at this client. λ counts like as many samples that only the first model explains; so a client
    without validation samples takes the first model. The problem is concave, and EM solves it: ``[N, J]``.

    Args:
        graph: the clients; training and test labels are not looked at.
        predictions: of every sample by each of J models.
        strength: λ.
    """
    rows = graph.mask(Split.VAL).cpu()
    y, owner = graph.y.cpu()[rows], graph.client.cpu()[rows]
    found = torch.stack([one[rows].double() for one in predictions])
    N, J = graph.num_clients, len(predictions)
    if graph.loss.of_numbers:
        error = (found[:, :, 0] - y).square()
        total = torch.zeros(N, dtype=torch.float64).index_add_(0, owner, error[0])
        width = total / torch.bincount(owner, minlength=N).clamp_min(1)
        q = (-0.5 * (error - error.min(0).values) / width.clamp_min(1e-12)[owner]).exp()
    else:
        q = found[:, torch.arange(len(y)), y].clamp_min(1e-15)
    weights = torch.full((N, J), 1 / J, dtype=torch.float64)
    for _ in range(STEPS):
        share = weights[owner] * q.T
        explained = torch.zeros_like(weights).index_add_(0, owner, share / share.sum(1, keepdim=True))
        explained[:, 0] += strength
        weights = explained / explained.sum(1, keepdim=True)
    return weights
