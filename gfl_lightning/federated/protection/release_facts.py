"""What accounting needs to know of a federation before it is built: which uploads there are, and what blurs them."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.federated.local.options import Estimator
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.weighting import Weighting, votes
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import propagation
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.mixing import direct_ratio, leverage
from gfl_lightning.privacy.releases import Facts

MOST_CLIENTS = 4096


def release_facts(
    graph: ClientGraph, model: Model, estimator: Estimator, schedule: Schedule, weighting: Weighting
) -> Facts:
    """The facts, from the schedule, Ã and the votes."""
    training, aggregator, c = schedule.training, model.aggregator, graph.num_classes
    rate = torch.zeros(graph.num_clients, dtype=torch.float64)
    batch = training.counts if schedule.local.batch_size is None else schedule.local.batch_size
    rate[training.clients.cpu()] = (batch / training.counts.double()).clamp_max(1).cpu()
    shown, signal = _aggregated(graph, model, schedule)
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
        diluted=_diluted(graph.num_clients, schedule, weighting),
        signal=signal,
        everyone_shares=schedule.everyone_shares,
    )


def _aggregated(graph: ClientGraph, model: Model, schedule: Schedule) -> tuple[Tensor, float]:
    """How much of an upload the aggregates tell a fellow client, and one of them alone.

    All of it where uploads stand for several rounds, the aggregator has several hops to send or clients are many.
    """
    N = graph.num_clients
    if not schedule.everyone_shares or model.aggregator.learnable or N > MOST_CLIENTS:
        return torch.ones(N, dtype=torch.float64), 1.0
    everyone = propagation(graph, model.aggregator.gamma, graph.x.dtype).dense().double()
    everyone.fill_diagonal_(0)
    return leverage(everyone[schedule.training.clients], everyone).cpu(), float(direct_ratio(everyone).max())


def _diluted(num_clients: int, schedule: Schedule, weighting: Weighting) -> Tensor:
    """vote_j² / Σ_{i≠k} vote_i²: what the average of noisy models tells client k, who knows its own, of W_j.

    Where only some clients train in a round the bound is for equal votes; for others it is 1.
    """
    places, vote = schedule.training_places(0), votes(schedule.training, weighting).double().cpu()
    diluted = torch.ones(num_clients, dtype=torch.float64)
    if places is not None:
        vote = vote[: len(places)] if weighting == "uniform" else vote[:1]
    squared = vote.square()
    largest, others = squared.max(), squared.sum() - squared
    known = torch.where(squared == largest, squared.sort().values[-2:][0], largest)
    share = squared / (squared + others - known) if len(vote) > 1 else torch.ones_like(squared)
    diluted[schedule.training.clients.cpu()] = share if places is None else share.max()
    return diluted
