"""The baseline without any exchange: every client trains an MLP of its own, all of them in one batched program."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.baselines.local_predictor import LocalPredictor, forward, one_hidden_layer
from gfl_lightning.checks import require, require_count, require_rate, require_room
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import Engine, EngineState, Report, require_weights
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import TrainingSet, draw_batches
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.models.encoders.encoder import Weights


def initial_weights(num_features: int, num_classes: int, num_clients: int, hidden: int = 64, seed: int = 0) -> Weights:
    """Where the training of every client's model starts, drawn one after another, stacked ``[N, …]``."""
    require_count("num_clients", num_clients)
    require_count("seed", seed, least=0)
    require_room("hidden", hidden, 4 * num_clients * hidden * (num_features + num_classes), 4)
    encoder, draw = one_hidden_layer(num_features, num_classes, hidden), generator(seed, Stream.WEIGHTS)
    models = [encoder.initial_weights(draw) for _ in range(num_clients)]
    return {name: torch.stack([model[name] for model in models]) for name in encoder.shapes}


@dataclass(frozen=True, eq=False)
class LocalState(EngineState):
    """Where the training of all clients stands.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> LocalModels(SC(num_clients=20, num_features=5).graph, hidden=4).start().client_loss.shape
    torch.Size([20])

    Args:
        round: updates made by each.
        weights: the models of all clients, stacked ``[N, …]``.
        client_loss: mean loss of each model on its client's validation samples ``[N]``; nan where it has none. It
            follows from the weights.
    """

    client_loss: Tensor


class LocalModels(LocalPredictor, Engine[LocalState]):
    """W_k ← W_k − η ∇ mean_{s ∈ batch} loss(y_{k,s}, h_k(x_{k,s}; W_k)): one update of every client's model a round.

    Every client has its own best round, that of its lowest validation loss (its last, if it has no validation
    samples): the weights that :meth:`choose` keeps are those of each client's own, while the round and the loss are
    those of the lowest mean over all.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> engine = LocalModels(SC(num_clients=20, num_features=10).graph, hidden=8)
    >>> state, report = engine.round(engine.start())
    >>> engine.choose(Best(), state, report).client_loss.shape
    torch.Size([20])

    Args:
        graph: the clients and their samples.
        hidden: width of the hidden layer.
        lr: η.
        batch_size: samples per update and client; ``None`` means all.
        seed: of the initial weights, drawn for each client anew, and of the batches.
    """

    def __init__(
        self, graph: ClientGraph, hidden: int = 64, lr: float = 0.1, batch_size: int | None = 5, seed: int = 0
    ) -> None:
        require_rate("lr", lr)
        require_count("seed", seed, least=0)
        if batch_size is not None:
            require_count("batch_size", batch_size)
        trains = graph.counts(graph.mask(Split.TRAIN)) > 0
        require(
            bool(trains.all()),
            "graph",
            "give every client a training sample, as each trains a model of its own",
            f"none for client {int(trains.int().argmin())}",
        )
        super().__init__(graph, hidden)
        self.lr, self.batch_size, self.seed = lr, batch_size, seed
        self._training = TrainingSet.of(graph)
        self._validation = graph.mask(Split.VAL).nonzero().flatten()
        self._validated = graph.counts(self._validation)

    def start(self, weights: Weights | None = None) -> LocalState:
        """The state before the first update."""
        if weights is None:
            graph = self.graph
            sizes = (graph.num_features, graph.num_classes, graph.num_clients)
            weights = initial_weights(*sizes, self.hidden, self.seed)
        return self.resume(0, weights, {})

    def round(self, state: LocalState, lr: float | None = None) -> tuple[LocalState, Report]:
        """One update of every client on its next batch, and the metrics of the weights that they leave."""
        lr = self.lr if lr is None else lr
        W1, W2 = self._structure.split(state.weights)
        slope1, slope2 = gradient(W1, W2, *self._batch(state.round), self.graph.loss)
        weights = self._structure.join(W1 - lr * slope1, W2 - lr * slope2)
        logits = self._logits(weights)
        metrics = self.evaluator(logits)
        self.require_convergence(metrics, lr, state)
        return LocalState(state.round + 1, weights, self._client_loss(logits)), Report(state.round + 1, metrics)

    def resume(self, round_number: int, weights: Weights, progress: dict[str, Any]) -> LocalState:
        """The state with these weights: the batches follow from the round."""
        require_weights(weights, self.shapes)
        weights = {name: weight.detach().to(self.graph.x, copy=True) for name, weight in weights.items()}
        return LocalState(round_number, weights, self._client_loss(self._logits(weights)))

    def choose(self, best: Best, state: LocalState, report: Report) -> Best:
        """Let every client whose own loss is its lowest so far, or who has none, keep its weights."""
        lowest = best.client_loss if best.weights else torch.full_like(state.client_loss, math.inf)
        before = best.weights or state.weights
        better = (state.client_loss < lowest) | (self._validated == 0)
        weights = {name: torch.where(better[:, None, None], W, before[name]) for name, W in state.weights.items()}
        kept = replace(best, weights=weights, client_loss=torch.where(better, state.client_loss, lowest))
        mean = report.metrics["val"].loss
        return replace(kept, round=state.round, val_loss=mean) if mean < best.val_loss else kept

    def _batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Features ``[N, b, d]``, targets of labels ``[N, b, c]`` and weights in the mean ``[N, b]`` of a step."""
        training = self._training
        drawn = draw_batches(training, self.batch_size, 1, step, self.seed, self.graph.x.dtype)
        if drawn.place is None:
            return self.graph.x[training.sample], training.target, drawn.weight[0]
        place = drawn.place[0]
        client = torch.arange(len(place), device=place.device)[:, None]
        return self.graph.x[training.sample[client, place]], training.target[client, place], drawn.weight[0]

    def _client_loss(self, logits: Tensor) -> Tensor:
        """Mean loss over each client's validation samples ``[N]``; nan where it has none."""
        rows = self._validation
        loss = self.graph.losses(logits[rows], rows)
        return loss.new_zeros(self.graph.num_clients).index_add_(0, self.graph.client[rows], loss) / self._validated


def gradient(
    W1: Tensor,
    W2: Tensor,
    x: Tensor,
    target: Tensor,
    share: Tensor,
    loss: Loss = CrossEntropy(),  # noqa: B008  # frozen
) -> tuple[Tensor, Tensor]:
    """∇ Σ_s share_{k,s} loss(y_{k,s}, h_k(x_{k,s})) of each client, ``x [N, b, d], target y [N, b, c], share [N, b]``.

    With r = share ∂loss/∂z, share (softmax(z) − y) for classes: ∇W1_k = ((r W2_k) ⊙ 1{a>0})ᵀ x and ∇W2_k = rᵀ a.
    """
    z, a = forward(W1, W2, x)
    r = share[..., None] * loss.residual(z, target)
    return ((r @ W2) * (a > 0)).mT @ x, r.mT @ a
