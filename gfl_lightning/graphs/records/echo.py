"""The echo of a shared label: how much of it a training row must hold for training to look like predicting."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.propagation import Propagation


def echoes(A: Propagation, training: Tensor) -> Tensor:
    """ρ_k ``[N]``, the share of its own label that a training row of client k holds; 0 for clients that do not train.

    A label reaches client i with the weight Ã_ik. A client that trains reads the labels of all that train but its own;
    one that does not train reads all of them. Where Ã mixes the whole graph, its own is the only label that a training
    client misses, so training would learn that a label in sight speaks *against* its class. So k reads its own label
    too, Ã_kk ρ_k strong: as strongly, beside all else that it reads, as those read it that do not train. With
    s = Ã 1, all that a client reads, and i over the clients that do not train,

        Ã_kk ρ_k = s_k Σ_i Ã_ik / Σ_i s_i.

    On a graph that mixes fully and under a linear encoder a training row then reads labels exactly as a row of a client
    that does not train; on a sparse graph ρ is next to nothing, and 0 for a client that nobody knows. Held-out rows of
    clients that train hold no echo. Where everybody trains these are all that is predicted, and they miss their own
    client's label as training rows do: ρ = 0. So it is where a coefficient is negative, as labels are then read by
    differences, which have no strength. Coefficients that are trained count as they start, so that ρ is the same in
    every round.

    >>> A = Propagation(torch.full((4, 4), 0.25), gamma=torch.tensor([0.2, 0.8]))
    >>> echoes(A, torch.tensor([0]))  # Ã_00 = 0.4, and 0.2 in all other places
    tensor([0.5000, 0.0000, 0.0000, 0.0000])
    """
    seen = A.apply(torch.ones(A.num_clients, 1, dtype=A.P.dtype, device=A.P.device)).flatten()
    predicted = torch.ones_like(seen)
    predicted[training] = 0
    found = torch.zeros_like(seen)
    total = float(seen @ predicted)
    if total > 0 and not bool((A.gamma < 0).any()):
        share = A.apply(predicted[:, None]).flatten()[training] / total
        found[training] = share * seen[training] / A.diagonal(training)
    return found


def with_echoes(graph: ClientGraph, columns: int, echo: Tensor) -> ClientGraph:
    """The graph whose training rows hold, in the last ``columns``, what their client shares there, ρ_k times."""
    x, shared, client = graph.x.clone(), graph.shared, graph.client
    label = x.new_zeros(graph.num_clients, columns).index_add_(0, client[shared], x[shared, -columns:])
    label /= graph.counts(shared).clamp(min=1)[:, None]
    train = graph.mask(Split.TRAIN)
    x[train, -columns:] = (echo.to(x)[:, None] * label)[client[train]]
    return replace(graph, x=x)
