"""The baseline without any exchange as a LightningModule: every client trains an MLP of its own on its own samples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor, nn

from gfl_lightning.baselines.central import require_finite, require_fit
from gfl_lightning.baselines.local_mlps import LocalSamples, gradient, initial_models, keep_better
from gfl_lightning.checks import require
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.round_module import Best, RoundModule, RoundResult
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights


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
        for name, stacked in initial_models(Encoder(num_features, num_classes, (hidden,)), num_clients, seed).items():
            self.register_parameter(name, nn.Parameter(stacked, requires_grad=False))
        self._samples: LocalSamples | None = None
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
        self._samples = LocalSamples.of(graph)

    @property
    def samples(self) -> LocalSamples:
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
        weights = keep_better(self.best.weights, self._weights, better)
        lowest = val_loss < self.best.val_loss
        self.best = Best(round_number, val_loss, weights) if lowest else replace(self.best, weights=weights)
