"""What accounting needs to know of a federation before it is built: which uploads there are, and what blurs them."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.federated.local.options import Estimator
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.weighting import Weighting, votes
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.propagation import propagation
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Ledger
from gfl_lightning.privacy.mixing import direct_ratio, leverage
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, releases

MOST_CLIENTS = 4096


def release_facts(
    graph: ClientGraph,
    model: Model,
    estimator: Estimator,
    schedule: Schedule,
    weighting: Weighting,
    colluding: int = 1,
) -> Facts:
    """The facts, from the schedule, Ã and the votes, against so many ``colluding`` fellow clients."""
    training, aggregator, c = schedule.training, model.aggregator, graph.num_classes
    rate = torch.zeros(graph.num_clients, dtype=torch.float64)
    batch = training.counts if schedule.local.batch_size is None else schedule.local.batch_size
    rate[training.clients.cpu()] = (batch / training.counts.double()).clamp_max(1).cpu()
    shown, signal = _aggregated(graph, model, schedule, colluding)
    shares = not aggregator.isolates
    compensated = shares and estimator == "compensated"
    return Facts(
        entries={
            "hidden": c if shares else 0,
            "jacobian": c * model.encoder.num_weights if compensated else 0,
            "update": model.num_weights,
        },
        shared=graph.counts(graph.shared).cpu(),
        rate=rate,
        steps=schedule.local.steps,
        leverage=shown,
        diluted=_diluted(graph.num_clients, schedule, weighting, colluding),
        signal=signal,
        everyone_shares=schedule.everyone_shares,
        validated=graph.counts(graph.mask(Split.VAL)).cpu(),
    )


def data_mark(key: NoiseKey, graph: ClientGraph) -> str:
    """What tells the data of a run from others, to those alone who have its key: a plain digest could be guessed at."""
    rows = (graph.x, graph.y, graph.client, graph.split, graph.shared, graph.edge_index, graph.edge_weight)
    return digest(key.secret, *rows).hex()


def sharing_epsilon(protection: Protection, guarantee: Guarantee, graph: ClientGraph) -> float:
    """ε of everybody sharing ĥ_j once, by itself."""
    counts = graph.counts(graph.shared).cpu()
    zero = torch.zeros(graph.num_clients, dtype=torch.float64)
    entries = {"hidden": graph.num_classes, "jacobian": 0, "update": 0}
    made = releases(protection, guarantee, Facts(entries, counts, zero, 0, zero, zero, 0.0, everyone_shares=True))
    return Ledger.empty(graph.num_clients).server_epsilon(made, guarantee)


def _aggregated(graph: ClientGraph, model: Model, schedule: Schedule, colluding: int) -> tuple[Tensor, float]:
    """How much of an upload the aggregates tell fellow clients, and one of them alone.

    All of it where uploads stand for several rounds, the aggregator has several hops to send or clients are many.
    """
    N = graph.num_clients
    if not schedule.everyone_shares or model.aggregator.learnable or N > MOST_CLIENTS:
        return torch.ones(N, dtype=torch.float64), 1.0
    everyone = propagation(graph, model.aggregator.gamma, graph.x.dtype).dense().double()
    everyone.fill_diagonal_(0)
    shown = leverage(everyone, schedule.training.clients, colluding)
    return shown.cpu(), float(direct_ratio(everyone).max())


def _diluted(num_clients: int, schedule: Schedule, weighting: Weighting, colluding: int) -> Tensor:
    """vote_j² / Σ_{i∉S} vote_i²: what the average of noisy models tells clients S, who know their own, of W_j.

    Where only some clients train in a round the bound is for equal votes; for others it is 1.
    """
    places, vote = schedule.training_places(0), votes(schedule.training, weighting).double().cpu()
    diluted = torch.ones(num_clients, dtype=torch.float64)
    if places is not None:
        vote = vote[: len(places)] if weighting == "uniform" else vote[:1]
    squared = vote.square()
    share = torch.ones_like(squared)
    for j in range(len(squared) if colluding < len(squared) else 0):
        others = torch.cat([squared[:j], squared[j + 1 :]])
        share[j] = squared[j] / (squared[j] + others.sort().values[: len(others) - colluding].sum())
    diluted[schedule.training.clients.cpu()] = share if places is None else share.max()
    return diluted
