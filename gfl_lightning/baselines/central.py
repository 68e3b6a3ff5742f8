"""Full-batch gradient descent of a graph neural network that sees the samples of all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.baselines.central_predictor import CentralPredictor
from gfl_lightning.baselines.networks.appnp_net import APPNPNet
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.checks import require_count, require_rate
from gfl_lightning.engine.engine import Engine, EngineState, Report, require_weights
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Weights


def initial_weights(architecture: Architecture, num_features: int, num_classes: int, seed: int = 0) -> Weights:
    """Where the training of a network starts, by the names of its parameters."""
    require_count("seed", seed, least=0)
    net = architecture.build(num_features, num_classes, generator(seed, Stream.WEIGHTS))
    return {name: weight.detach() for name, weight in net.named_parameters()}


@dataclass(frozen=True, eq=False)
class CentralState(EngineState):
    """Where a network's training stands.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> state = CentralDescent(KarateClub().graph).start()
    >>> state.round, state.gradient.keys() == state.weights.keys()
    (0, True)

    Args:
        round: updates made.
        weights: W by name.
        gradient: ∇ of the mean training loss at W, by name: what the next update takes. It follows from W.
    """

    gradient: Weights


class CentralDescent(CentralPredictor, Engine[CentralState]):
    """W ← W − η ∇ mean_{k ∈ train} loss(y_k, f_k(X, G; W)): one update a round, all samples in one place.

    Only for graphs with one sample per client (DNC). With :class:`APPNPNet` it is what GFL-APPNP with I = 1 computes.
    The pass that evaluates the new weights also gives the next gradient, so that a round is one pass forth and back.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> engine = CentralDescent(KarateClub().graph, lr=0.2)
    >>> state, report = engine.round(engine.start())
    >>> state.round, sorted(state.weights)
    (1, ['W1', 'W2'])

    Args:
        graph: the clients and their samples.
        architecture: of the network; by default the paper's encoder and aggregator.
        lr: η.
        seed: of the initial weights.
    """

    def __init__(
        self,
        graph: ClientGraph,
        architecture: Architecture = APPNPNet(),  # noqa: B008  # frozen
        lr: float = 0.5,
        seed: int = 0,
    ) -> None:
        require_rate("lr", lr)
        require_count("seed", seed, least=0)
        super().__init__(graph, architecture)
        self.lr, self.seed = lr, seed
        self._parameters = dict(self._net.named_parameters())
        training = TrainingSet.of(graph)
        self._trainers, self._train = training.clients, training.sample.flatten()

    def start(self, weights: Weights | None = None) -> CentralState:
        """The state before the first update."""
        if weights is None:
            weights = initial_weights(self.architecture, self.graph.num_features, self.graph.num_classes, self.seed)
        return self.resume(0, weights, {})

    def round(self, state: CentralState, lr: float | None = None) -> tuple[CentralState, Report]:
        """One update, and the metrics of the weights that it leaves."""
        lr = self.lr if lr is None else lr
        weights = {name: torch.add(W, state.gradient[name], alpha=-lr) for name, W in state.weights.items()}
        logits, gradient = self._look(weights)
        metrics = self.evaluator(logits)
        self.require_convergence(metrics, lr, state)
        return CentralState(state.round + 1, weights, gradient), Report(state.round + 1, metrics)

    def resume(self, round_number: int, weights: Weights, progress: dict[str, Any]) -> CentralState:
        """The state with these weights: gradient descent has no other."""
        require_weights(weights, self.shapes)
        weights = {name: weight.detach().to(self.graph.x, copy=True) for name, weight in weights.items()}
        return CentralState(round_number, weights, self._look(weights)[1])

    @torch.enable_grad()
    def _look(self, weights: Weights) -> tuple[Tensor, Weights]:
        """One pass forth and back: logits by sample, and the gradient of the mean training loss by name.

        The weights are loaded into the network, since a functional call would cost a small graph a tenth of its round.
        """
        for name, parameter in self._parameters.items():
            parameter.data = weights[name]
        Z = self._net(self._x, self._edges)
        loss = self.graph.losses(Z[self._trainers], self._train).mean()
        slopes = torch.autograd.grad(loss, list(self._parameters.values()))
        return Z.detach()[self.graph.client], dict(zip(self._parameters, slopes, strict=True))
