"""The baseline without any exchange as a LightningModule: every client trains an MLP of its own on its own samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor, nn
from torch.nn import functional as F

from gfl_lightning.checks import require
from gfl_lightning.federated.evaluation import Evaluator, Metrics
from gfl_lightning.federated.randomness import Stream, generator
from gfl_lightning.federated.table import Ragged
from gfl_lightning.federated.training_set import TrainingSet, draw_batches
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.lit.central import require_finite, require_fit
from gfl_lightning.lit.round_module import Best, RoundModule, RoundResult
from gfl_lightning.models.encoder import Encoder, Weights


class LocalMLPs(RoundModule):
    """N models h_k(x) = W2_k relu(W1_k x), each trained on the samples of its client: one update of each a round.

    ``W1 [N, hidden, d]`` and ``W2 [N, c, hidden]`` hold all models. Every client has its own best round, that of its
    lowest validation loss (its last round, if it has no validation samples): :meth:`use_best` gives each client the
    weights of its own, while ``best.round`` and ``best.val_loss`` are of the round with the lowest mean over all.

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        num_clients: N, linked to the data.
        hidden: width of the hidden layer.
        lr: η.
        batch_size: samples per update and client; none means all.
        seed: of the initial weights, drawn for each client anew, and of the batches.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    W1: nn.Parameter
    W2: nn.Parameter

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        num_clients: int,
        hidden: int = 64,
        lr: float = 0.1,
        batch_size: int | None = 5,
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(lr, lr_scheduler)
        self.save_hyperparameters(ignore=["lr_scheduler"])
        require(num_clients >= 1, "num_clients", "be at least 1", num_clients)
        require(batch_size is None or batch_size >= 1, "batch_size", "be at least 1", batch_size)
        require(seed >= 0, "seed", "be at least 0", seed)
        self.sizes = (num_features, num_classes)
        self.num_clients, self.batch_size, self.seed = num_clients, batch_size, seed
        encoder, draw = Encoder(num_features, num_classes, (hidden,)), generator(seed, Stream.WEIGHTS)
        models = [encoder.initial_weights(draw) for _ in range(num_clients)]
        for name in encoder.shapes:
            stacked = torch.stack([model[name] for model in models])
            self.register_parameter(name, nn.Parameter(stacked, requires_grad=False))
        self._samples: Samples | None = None
        self._rounds = 0
        self._weights: Weights = {}
        self._own_loss = self._best_loss = torch.full((num_clients,), math.inf)

    def prepare(self, graph: ClientGraph) -> None:
        """Refuse graphs in which a client cannot train, and arrange the samples of others."""
        require_fit(graph, *self.sizes)
        require(
            graph.num_clients == self.num_clients,
            "graph",
            f"have {self.num_clients} clients, as the model has",
            graph.num_clients,
        )
        trains = graph.counts(graph.mask(Split.TRAIN)) > 0
        require(
            bool(trains.all()),
            "graph",
            "give every client a training sample, as each trains a model of its own",
            f"none for client {int(trains.int().argmin())}",
        )
        self._samples = Samples.of(graph)

    @property
    def samples(self) -> Samples:
        """The samples by client."""
        assert self._samples is not None, "the samples exist once the data are set up"
        return self._samples

    def begin(self, rounds_done: int, saved: dict[str, Any]) -> None:
        """Start from the parameters, or resume with what each client's best round was."""
        self._rounds = rounds_done
        if rounds_done == 0:
            self._best_loss = torch.full_like(self._best_loss, math.inf)
        self._best_loss = saved.get("best_loss", self._best_loss).to(self.W1)
        self.best = replace(self.best, weights={name: weight.to(self.W1) for name, weight in self.best.weights.items()})

    def progress(self) -> dict[str, Any]:
        """The lowest validation loss of each client ``[N]``; its weights are among those of the best round."""
        return {"best_loss": self._best_loss}

    def run_round(self, lr: float) -> RoundResult:
        """One update of every client on its next batch, from whatever the parameters are now."""
        samples, weights = self.samples, self.current_weights()
        rows, share = samples.batch(self.batch_size, self._rounds, self.seed)
        slopes = gradient(weights, samples.graph.x[rows], samples.graph.y[rows], share)
        self._weights = {name: weight - lr * slopes[name] for name, weight in weights.items()}
        for name, weight in self._weights.items():
            self.get_parameter(name).data.copy_(weight)
        self._rounds += 1
        logits = samples.logits(self._weights)
        self._own_loss = samples.validation_loss(logits)
        metrics = samples.evaluator(logits)
        require_finite(metrics, lr)
        return RoundResult(metrics, {"lr": lr})

    def predict_logits(self) -> Tensor:
        """Logits of every sample under the model of its client."""
        return self.samples.logits(self.current_weights())

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split."""
        return self.samples.evaluator(self.predict_logits())

    def last_weights(self) -> Weights:
        """The weights of all clients after the last update."""
        return self._weights

    def _keep_best(self, round_number: int, val_loss: float) -> None:
        """Let every client whose own loss is its lowest so far, or who has none, keep its weights."""
        better = (self._own_loss < self._best_loss) | self.samples.unvalidated
        self._best_loss = torch.where(better, self._own_loss, self._best_loss)
        weights = {
            name: torch.where(better[:, None, None], weight, self.best.weights.get(name, weight))
            for name, weight in self._weights.items()
        }
        lowest = val_loss < self.best.val_loss
        self.best = Best(round_number, val_loss, weights) if lowest else replace(self.best, weights=weights)


@dataclass(frozen=True, eq=False)
class Samples:
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
    def of(cls, graph: ClientGraph) -> Samples:
        """Arrange the samples of a graph."""
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
