"""The baseline without any exchange: every client trains an MLP of its own, all of them in one batched program."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.checks import require
from gfl_lightning.engine.evaluation import Evaluator
from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import TrainingSet, draw_batches
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights


def initial_models(encoder: Encoder, num_clients: int, seed: int) -> Weights:
    """Initial weights of every client's model, drawn one after another, stacked ``[N, …]``."""
    draw = generator(seed, Stream.WEIGHTS)
    models = [encoder.initial_weights(draw) for _ in range(num_clients)]
    return {name: torch.stack([model[name] for model in models]) for name in encoder.shapes}


def keep_better(best: Weights, now: Weights, better: Tensor) -> Weights:
    """The weights of now for the clients in the mask ``better [N]``, the best so far (now's, if none) for the rest."""
    return {name: torch.where(better[:, None, None], W, best.get(name, W)) for name, W in now.items()}


@dataclass(frozen=True, eq=False)
class LocalSamples:
    """A graph's samples arranged by client.

    Args:
        graph: the graph.
        by_client: all samples, K = N.
        training: the training samples, K = N as all clients train.
        unvalidated: which clients have no validation samples ``[N]``.
        evaluator: of logits by sample.
    """

    graph: ClientGraph
    by_client: Ragged
    training: TrainingSet
    unvalidated: Tensor
    evaluator: Evaluator

    @classmethod
    def of(cls, graph: ClientGraph) -> LocalSamples:
        """Arrange the samples of a graph; refuse one in which a client cannot train."""
        trains = graph.counts(graph.mask(Split.TRAIN)) > 0
        require(
            bool(trains.all()),
            "graph",
            "give every client a training sample, as each trains a model of its own",
            f"none for client {int(trains.int().argmin())}",
        )
        unvalidated = graph.counts(graph.mask(Split.VAL)) == 0
        return cls(graph, Ragged.of(graph.client), TrainingSet.of(graph), unvalidated, Evaluator(graph))

    def batch(self, batch_size: int | None, step: int, seed: int) -> tuple[Tensor, Tensor]:
        """Rows of the sample table in a step's batches and their weights in the mean, both ``[N, b]``."""
        drawn = draw_batches(self.training, batch_size, 1, step, seed, self.graph.x.dtype)
        rows = self.training.sample
        return (rows if drawn.place is None else rows.gather(1, drawn.place[0])), drawn.weight[0]

    def logits(self, weights: Weights) -> Tensor:
        """Logits of all samples under the models of their clients ``[S, c]``."""
        place, present = self.by_client.place, self.by_client.present
        z, _ = forward(weights, self.graph.x[place])
        logits = z.new_empty(self.graph.num_samples, z.shape[-1])
        logits[place[present]] = z[present]
        return logits

    def validation_loss(self, logits: Tensor) -> Tensor:
        """Mean cross-entropy over each client's validation samples ``[N]``; nan where it has none."""
        rows = self.graph.mask(Split.VAL)
        loss = F.cross_entropy(logits[rows], self.graph.y[rows], reduction="none")
        loss = loss if self.graph.weight is None else loss * self.graph.weight[rows]
        total = loss.new_zeros(self.graph.num_clients).index_add_(0, self.graph.client[rows], loss)
        return total / self.graph.counts(rows)


def forward(weights: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """z = W2_k a and a = relu(W1_k x) of clients' samples, ``[N, b, d] → [N, b, c], [N, b, hidden]``."""
    a = torch.relu(x @ weights["W1"].mT)
    return a @ weights["W2"].mT, a


def gradient(weights: Weights, x: Tensor, y: Tensor, share: Tensor) -> Weights:
    """∇ Σ_s share_{k,s} loss(y_{k,s}, h_k(x_{k,s})) of each client, for x ``[N, b, d]``, y and share ``[N, b]``.

    With r = share (softmax(z) − y): ∇W2_k = rᵀ a and ∇W1_k = ((r W2_k) ⊙ 1{a>0})ᵀ x.
    """
    z, a = forward(weights, x)
    r = share[..., None] * (torch.softmax(z, -1) - F.one_hot(y, z.shape[-1]))
    return {"W1": ((r @ weights["W2"]) * (a > 0)).mT @ x, "W2": r.mT @ a}
