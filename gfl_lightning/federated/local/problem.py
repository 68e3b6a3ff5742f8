"""Step 1 of a round, its interface: what training clients start from and what they hand back."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.engine.training_set import Batches, TrainingSet
from gfl_lightning.federated.exchange.exchange import Exchange
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood
from gfl_lightning.federated.personal.offsets import NoOffset
from gfl_lightning.federated.protection.clipping import clip_scale
from gfl_lightning.federated.protection.jacobian_noise import NoJacobianNoise
from gfl_lightning.federated.protection.step_guard import PlainSteps
from gfl_lightning.federated.server.weighting import rescaled
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.protection import Protection


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """The K clients that train in this round.

    Args:
        weights: W̄, where each W_k starts.
        exchange: the uploads that stand.
        neighbourhood: Ã for these clients, through their gates.
        training: their samples.
        batches: the samples of each local step.
        chosen: their places among all training clients; ``None`` means all.
        vote: weight of each client in the average ``[K]``, summing to 1.
        lr: η.
        steps: I.
        protection: bounds and noise.
        noise: what noise on Jacobians adds to ∇C_k.
        step_guard: DP-SGD's bound and noise in local steps.
        offset: what their personal terms add to the outputs of their samples.
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
    protection: Protection
    noise: NoJacobianNoise
    step_guard: PlainSteps
    offset: NoOffset

    def take(self, places: Tensor) -> LocalProblem:
        """The problem of some of its clients, given by their places."""
        return replace(
            self,
            neighbourhood=self.neighbourhood.take(places),
            training=self.training.take(places),
            batches=self.batches.take(places),
            chosen=places if self.chosen is None else self.chosen[places],
            vote=rescaled(self.vote[places]),
            noise=self.noise.take(places),
            step_guard=self.step_guard.take(places),
            offset=self.offset.take(places),
        )

    def counted(self, vote: Tensor, skipped: int, norm: Callable[[], Tensor]) -> Tensor:
        """Weight of each update in the average, from votes that are 0 where one of the ``skipped`` is not finite.

        Without protection the others' votes make up for the missing ones. With it nobody's vote depends on anybody's
        data: a missing update counts as none at all, and ``norm()``, ‖W_k − W̄‖ ``[K]``, decides by how much one is
        scaled down.
        """
        if not self.protection.touches_models:
            return rescaled(vote) if skipped else vote
        bound = self.protection.update.clip
        return vote * clip_scale(norm(), bound) if math.isfinite(bound) else vote

    def average(self, weight: Tensor, vote: Tensor, stacked: Tensor) -> Tensor:
        """W̄ + Σ_k vote_k (W_k − W̄) of one weight W̄, from W_k stacked ``[K, …]``."""
        mean = weighted_sum(vote, stacked)
        return mean + (1 - vote.sum()) * weight if self.protection.touches_models else mean


@dataclass(frozen=True, eq=False)
class LocalResult:
    """What the clients' local steps come to.

    Args:
        average: W̃, over the clients whose update is finite.
        skipped: how many were left out because theirs is not.
        pull: the coefficients in W̃ of noise on ∇C_k ``[K, L, c]``, should there be any.
    """

    average: Weights
    skipped: int
    pull: Tensor


class LocalPath(ABC):
    """A way to carry out the I local steps of all training clients and to average the results."""

    @abstractmethod
    def __call__(self, problem: LocalProblem) -> LocalResult:
        """Train and average."""

    def models(self, problem: LocalProblem) -> Weights:
        """The weights of all clients after their local steps, stacked ``[K, …]``; not finite where an update is not.

        A path that never forms W_k takes it as the average over client k alone: K passes of one client each.
        """
        places = torch.arange(len(problem.training), device=problem.vote.device)
        alone = [self(problem.take(place)) for place in places.split(1)]
        models = [{name: W if not one.skipped else W * math.nan for name, W in one.average.items()} for one in alone]
        return {name: torch.stack([model[name] for model in models]) for name in problem.weights}


def finite_only(vote: Tensor, *stacked: Tensor) -> tuple[int, Tensor, list[Tensor]]:
    """Leave out the clients with a non-finite entry in any of the ``[K, …]`` tensors.

    Returns how many were left out, and the votes and tensors with 0 in place of theirs.
    """
    if math.isfinite(sum(float(tensor.sum()) for tensor in stacked)):
        return 0, vote, list(stacked)
    finite = torch.stack([tensor.flatten(1).isfinite().all(1) for tensor in stacked]).all(0)
    kept = [torch.where(finite.view(-1, *[1] * (tensor.ndim - 1)), tensor, 0) for tensor in stacked]
    return int((~finite).sum()), torch.where(finite, vote, 0), kept


def update_norms(start: Weights, stacked: Weights) -> Tensor:
    """‖W_k − W̄‖ over all weights together, for W_k stacked ``[K, …]``."""
    squared = [(stacked[name] - weight).flatten(1).square().sum(1) for name, weight in start.items()]
    return torch.stack(squared).sum(0).sqrt()


def weighted_sum(vote: Tensor, stacked: Tensor) -> Tensor:
    """Σ_k vote_k T_k, ``[K], [K, …] → […]``."""
    return (vote @ stacked.flatten(1)).view(stacked.shape[1:])


def residual(loss: Loss, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """r = weight · ∂ℓ/∂z, ``[K, n, c]``; its sum over a batch is the mean of ŷ − y.

    ``weight [K, n]`` may be ``None`` where every batch is one sample.
    """
    r = loss.residual(logits, target)
    return r if weight is None else r.mul_(weight[..., None])
