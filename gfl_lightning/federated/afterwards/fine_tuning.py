"""Clients that train on alone: from W̄, on their own training samples, what their neighbours shared held fixed.

With a_k = ∂z/∂h, what client k predicts of its samples by weights of its own is
    z_s(W_k) = z_s + a_k (h(x_s; W_k) − h(x_s; W̄)),
z_s being what it predicts by W̄: nothing is exchanged, and nobody else's prediction moves.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vjp, vmap

from gfl_lightning.checks import require_room
from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights


def fine_tuned(
    graph: ClientGraph, encoder: SizedEncoder, weights: Weights, z: Tensor, a: Tensor, lr: float, steps: tuple[int, ...]
) -> list[Weights]:
    """W_k of every client after so many steps down its mean training loss, for each number of steps ``[N, …]``.

    A client without training samples keeps W̄, and so does one whose steps end in weights that are not finite.

    Args:
        graph: the clients and their samples.
        encoder: Ψ_h.
        weights: W̄; those of an aggregator are left out.
        z: what is predicted by W̄ ``[S, c]``.
        a: ∂z/∂h of every client ``[N]``.
        lr: η.
        steps: rising numbers of steps; none for none.
    """
    if not steps:
        return []
    N = graph.num_clients
    require_room("mix.steps", steps, (len(steps) + 2) * N * encoder.num_weights, graph.x.element_size())
    start = {name: weights[name] for name in encoder.shapes}
    training = TrainingSet.of(graph, every_class=False)
    rows = training.sample
    share = training.weight * training.present / training.counts[:, None]
    data = (graph.x[rows], z[rows], encoder(start, graph.x)[rows], a[training.clients], training.target, share)
    loss = graph.loss

    def step(W: Weights, x: Tensor, z: Tensor, h: Tensor, a: Tensor, target: Tensor, share: Tensor) -> Weights:
        now, back = vjp(lambda weights: encoder(weights, x), W)  # type: ignore[misc]  # three only with has_aux
        r = loss.residual(z + a * (now - h), target)
        (slope,) = back(a * torch.where(share[:, None] > 0, share[:, None] * r, 0))
        return {name: W[name] - lr * slope[name] for name in W}

    every = vmap(step)
    W = {name: weight.expand(len(training), *weight.shape).clone() for name, weight in start.items()}
    found, made = [], 0
    for wanted in steps:
        for _ in range(made, wanted):
            W = every(W, *data)
        made = wanted
        finite = torch.stack([weight.flatten(1).isfinite().all(1) for weight in W.values()]).all(0)
        kept = {name: weight.expand(N, *weight.shape).clone() for name, weight in start.items()}
        for name, weight in W.items():
            kept[name][training.clients[finite]] = weight[finite]
        found.append(kept)
    return found


def own_representations(graph: ClientGraph, encoder: SizedEncoder, weights: Weights, number: Tensor) -> Tensor:
    """h(x_s; W_k) of every sample ``[S, c]``, client k having the weights of number ``number [N]`` among ``[M, …]``."""
    ragged = Ragged.of(graph.client)
    mine = {name: weight[number[ragged.clients]] for name, weight in weights.items()}
    h = vmap(encoder)(mine, graph.x[ragged.place])
    found = h.new_empty(graph.num_samples, h.shape[2])
    found[ragged.place[ragged.present]] = h[ragged.present]
    return found
