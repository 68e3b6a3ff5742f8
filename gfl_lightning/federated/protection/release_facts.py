"""What accounting needs to know of a federation: which messages there are, and how aggregation blurs them."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.privacy.mixing import direct_ratio, leverage
from gfl_lightning.privacy.releases import Facts

MOST_CLIENTS = 4096


def release_facts(federation: Federation) -> Facts:
    """The facts of a federation."""
    graph, schedule, training = federation.graph, federation.schedule, federation.schedule.training
    rate = torch.zeros(graph.num_clients, dtype=torch.float64)
    batch = training.counts if federation.local.batch_size is None else federation.local.batch_size
    rate[training.clients.cpu()] = (batch / training.counts.double()).clamp_max(1).cpu()
    shown, signal = _aggregated(federation)
    return Facts(
        shares_hidden=not federation.isolated,
        shares_jacobian=not federation.isolated and federation.estimator == "compensated",
        shared=graph.counts(graph.shared).cpu(),
        rate=rate,
        steps=federation.local.steps,
        leverage=shown,
        diluted=_diluted(federation),
        signal=signal,
        everyone_shares=schedule.everyone_shares,
    )


def _aggregated(federation: Federation) -> tuple[Tensor, float]:
    """How much of an upload the aggregates tell a fellow client, and one of them alone.

    All of it where uploads stand for several rounds, the aggregator has several hops to send or clients are many.
    """
    N, clients = federation.graph.num_clients, federation.schedule.training.clients
    if not federation.schedule.everyone_shares or federation.aggregator.learnable or N > MOST_CLIENTS:
        return torch.ones(N, dtype=torch.float64), 1.0
    everyone = federation.propagation.dense().double()
    everyone.fill_diagonal_(0)
    return leverage(everyone[clients], everyone).cpu(), float(direct_ratio(everyone).max())


def _diluted(federation: Federation) -> Tensor:
    """vote_j² / Σ_{i≠k} vote_i²: what the average of noisy models tells client k, who knows its own, of W_j.

    Where only some clients train in a round the bound is for equal votes; for others it is 1.
    """
    N, schedule = federation.graph.num_clients, federation.schedule
    places, votes = schedule.training_places(0), federation.votes.double().cpu()
    diluted = torch.ones(N, dtype=torch.float64)
    equal = federation.server.weighting == "uniform"
    if places is not None:
        votes = votes[: len(places)] if equal else votes[:1]
    squared = votes.square()
    largest, others = squared.max(), squared.sum() - squared
    known = torch.where(squared == largest, squared.sort().values[-2:][0], largest)
    share = squared / (squared + others - known) if len(votes) > 1 else torch.ones_like(squared)
    diluted[schedule.training.clients.cpu()] = share if places is None else share.max()
    return diluted
