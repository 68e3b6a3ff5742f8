"""Step 4 of a round, its interface: what training clients start from and what they hand back."""

from __future__ import annotations

from dataclasses import dataclass
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
        vote: weight of each client in the average ``[K]``, not yet normalised.
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


@dataclass(frozen=True, eq=False)
class LocalResult:
    """The average W̃ over the clients whose update is finite, and which those are ``[K]``."""

    average: Weights
    finite: Tensor


class LocalPath(Protocol):
    """A way to carry out the I local steps of all training clients and to average the results."""

    def __call__(self, problem: LocalProblem) -> LocalResult:
        """Train and average."""


def normalised_vote(vote: Tensor, finite: Tensor) -> Tensor:
    """Weights in the average: 0 for a client whose update is not finite, the rest summing to 1 (or all 0)."""
    kept = torch.where(finite, vote, 0)
    return kept / kept.sum().clamp_min(torch.finfo(vote.dtype).tiny)


def residual(h: Tensor, own: Tensor, C: Tensor, onehot: Tensor, weight: Tensor) -> Tensor:
    """r = weight · (softmax(Ã_kk h + C_k) − y), ``[K, n, c]``; its sum over a batch is the mean of ŷ − y."""
    logits = torch.addcmul(C[:, None, :], h, own[:, None, None])
    return torch.softmax(logits, dim=-1).sub_(onehot).mul_(weight[..., None])
