"""How much a client heeds each of several models: by its validation samples, as far as they are to be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split

STRENGTHS = (30.0, 10.0, 3.0, 1.0)
FIRST, STEPS, FOLDS = 5.0, 100, 5


def mixed(graph: ClientGraph, predictions: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Σ_j w_kj p_{j,s} of every sample ``[S, c]``, from J predictions ``[S, c]`` and weights ``[N, J]``."""
    owner, first = graph.client.cpu(), predictions[0]
    total = torch.zeros(first.shape, dtype=torch.float64)
    for j, one in enumerate(predictions):
        total += weights[owner, j, None] * one.double().cpu()
    return total.to(first)


def mixing_weights(graph: ClientGraph, predictions: Sequence[Tensor]) -> Tensor:
    """w_k of every client ``[N, J]``, from predictions ``[S, c]`` of each of J models, the first as trained.

    w_k is the maximum over the simplex of Σ_s log Σ_j w_kj q_{j,s} + λ Σ_j w_0j log w_kj over client k's validation
    samples, q being the probability of the true label, or of a number the normal density about what is predicted, as
    wide as the first model's errors at this client. w_0 is everybody's mix, the same over all clients with `FIRST` more
    samples that only the first model explains. EM solves both.

    So few samples flatter whatever they choose. λ is therefore infinite, w_k = w_0, unless some λ explains validation
    samples better when each is judged by weights that it did not help to choose (`FOLDS` folds within each client), by
    more than a standard error over clients.

    Args:
        graph: the clients; training and test labels are not looked at.
        predictions: of every sample by each of the models.
    """
    q, owner = explained(graph, predictions)
    if len(predictions) == 1 or not len(q):
        first = torch.zeros(graph.num_clients, len(predictions), dtype=torch.float64)
        first[:, 0] = 1
        return first
    centre = everybodys(q)
    strength = trusted_strength(q, owner, centre)
    return own_weights(q, owner, graph.num_clients, centre, strength)


def explained(graph: ClientGraph, predictions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """q of each validation sample under each model ``[V, J]``, and its owner ``[V]``."""
    rows = graph.mask(Split.VAL).cpu()
    y, owner = graph.y.cpu()[rows], graph.client.cpu()[rows]
    found = torch.stack([one.cpu()[rows].double() for one in predictions])
    if not graph.loss.of_numbers:
        return found[:, torch.arange(len(y)), y].clamp_min(1e-15).T, owner
    N, error = graph.num_clients, (found[:, :, 0] - y).square()
    total = torch.zeros(N, dtype=torch.float64).index_add_(0, owner, error[0])
    width = total / torch.bincount(owner, minlength=N).clamp_min(1)
    floor = 1e-12 + 1e-9 * float(error.mean()) if len(y) else 1.0
    return (-0.5 * (error - error.min(0).values) / width.clamp_min(floor)[owner]).exp().clamp_min(1e-15).T, owner


def everybodys(q: Tensor) -> Tensor:
    """w_0 ``[J]``."""
    prior = torch.zeros(q.shape[1], dtype=q.dtype)
    prior[0] = 1
    everybody = torch.zeros(len(q), dtype=torch.int64)
    return _em(q, everybody, torch.full((1, len(prior)), 1 / len(prior), dtype=q.dtype), FIRST * prior)[0]


def own_weights(q: Tensor, owner: Tensor, clients: int, centre: Tensor, strength: float) -> Tensor:
    """w_k of every client ``[N, J]``; w_0 for one without validation samples."""
    start = centre.expand(clients, -1)
    return start.clone() if math.isinf(strength) else _em(q, owner, start, strength * centre)


def trusted_strength(q: Tensor, owner: Tensor, centre: Tensor) -> float:
    """λ, by samples that did not help to choose the weights that they are judged by."""
    clients = int(owner.max()) + 1
    fold = _place_within(owner, clients) % FOLDS
    usual = (q @ centre).log()
    best, most = math.inf, 0.0
    for strength in STRENGTHS:
        gain = torch.zeros(clients, dtype=q.dtype)
        for number in range(FOLDS):
            out = fold == number
            weights = own_weights(q[~out], owner[~out], clients, centre, strength)
            judged = (q[out] * weights[owner[out]]).sum(1).log() - usual[out]
            gain.index_add_(0, owner[out], judged)
        total, error = (
            float(gain.sum()),
            float(gain.std(correction=1)) * math.sqrt(clients) if clients > 1 else math.inf,
        )
        if total > max(error, most):
            best, most = strength, total
    return best


def _place_within(owner: Tensor, clients: int) -> Tensor:
    """The number of each sample among those of its client."""
    order = torch.argsort(owner, stable=True)
    count = torch.bincount(owner, minlength=clients)
    place = torch.empty_like(owner)
    place[order] = torch.arange(len(owner)) - (count.cumsum(0) - count)[owner[order]]
    return place


def _em(q: Tensor, owner: Tensor, start: Tensor, prior: Tensor) -> Tensor:
    """The weights ``[N, J]`` to which EM rises from a start, with a prior of so many samples of each model ``[J]``."""
    weights = start
    for _ in range(STEPS):
        share = weights[owner] * q
        found = (
            torch.zeros_like(start).index_add_(0, owner, share / share.sum(1, keepdim=True).clamp_min(1e-300)) + prior
        )
        weights = found / found.sum(1, keepdim=True)
    return weights
