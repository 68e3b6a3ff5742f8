"""Step 4 of a round, its interface: what training clients start from and what they hand back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from gfl_lightning.federated.exchange import Exchange
from gfl_lightning.federated.neighbourhood import Neighbourhood
from gfl_lightning.federated.training_set import Batches, TrainingSet
from gfl_lightning.models.encoder import Weights


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """The K clients that train in this round.

    Args:
        weights: W̄, where each W_k starts.
        exchange: the uploads that stand.
        neighbourhood: Ã for these clients.
        training: their samples.
        batches: the samples of each local step.
        chosen: their places among all training clients; ``None`` means all.
        vote: weight of each client in the average ``[K]``, summing to 1.
        lr: η.
        steps: I.
    """

    weights: Weights
    exchange: Exchange
    neighbourhood: Neighbourhood
    training: TrainingSet
    batches: Batches
    chosen: Tensor | None
    vote: Tensor
    lr: float
    steps: int

    def take(self, places: Tensor) -> LocalProblem:
        """The problem of some of its clients, given by their places."""
        return replace(
            self,
            neighbourhood=self.neighbourhood.take(places),
            training=self.training.take(places),
            batches=self.batches.take(places),
            chosen=places if self.chosen is None else self.chosen[places],
            vote=rescaled(self.vote[places]),
        )


@dataclass(frozen=True, eq=False)
class LocalResult:
    """The average W̃ over the clients whose update is finite, and how many were left out because theirs is not."""

    average: Weights
    skipped: int


class LocalPath(Protocol):
    """A way to carry out the I local steps of all training clients and to average the results."""

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """Train and average."""


def finite_only(vote: Tensor, *stacked: Tensor) -> tuple[int, Tensor, list[Tensor]]:
    """Leave out the clients with a non-finite entry in any of the ``[K, …]`` tensors.

    Returns how many were left out, and the votes and tensors with 0 in place of theirs.
    """
    if math.isfinite(sum(float(tensor.sum()) for tensor in stacked)):
        return 0, vote, list(stacked)
    finite = torch.stack([tensor.flatten(1).isfinite().all(1) for tensor in stacked]).all(0)
    kept = [torch.where(finite.view(-1, *[1] * (tensor.ndim - 1)), tensor, 0) for tensor in stacked]
    return int((~finite).sum()), torch.where(finite, vote, 0), kept


def rescaled(vote: Tensor) -> Tensor:
    """Votes that sum to 1 again, or all 0 where there are none left."""
    return vote / vote.sum().clamp_min(torch.finfo(vote.dtype).tiny)


def weighted_sum(vote: Tensor, stacked: Tensor) -> Tensor:
    """Σ_k vote_k T_k, ``[K], [K, …] → […]``."""
    return (vote @ stacked.flatten(1)).view(stacked.shape[1:])


def residual(logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """r = weight · (softmax(logits) − y), ``[K, n, c]``; its sum over a batch is the mean of ŷ − y.

    ``weight [K, n]`` may be ``None`` where every batch is one sample.
    """
    r = torch.softmax(logits, dim=-1).sub_(target)
    return r if weight is None else r.mul_(weight[..., None])
