"""The paper's centralised baselines as a LightningModule: full-batch gradient descent of a graph neural network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.checks import require
from gfl_lightning.federated.evaluation import Evaluator, Metrics
from gfl_lightning.federated.federation import DivergedError
from gfl_lightning.federated.options import require_choice
from gfl_lightning.federated.randomness import Stream, generator
from gfl_lightning.federated.training_set import TrainingSet
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.round_module import RoundModule, RoundResult
from gfl_lightning.models.baselines import GAT, GCN, APPNPNet, Edges, GraphNet, GraphSAGE
from gfl_lightning.models.encoder import Weights

Architecture = Literal["appnp", "gcn", "gat", "sage"]
PYG_NETS: dict[str, type[GCN] | type[GAT] | type[GraphSAGE]] = {"gcn": GCN, "gat": GAT, "sage": GraphSAGE}


class Central(RoundModule):
    """W ← W − η ∇ mean_{k ∈ train} loss(y_k, f_k(X, G; W)): one update a round, all samples in one place.

    Only for graphs with one sample per client (DNC). With ``appnp`` it is what GFL-APPNP with I = 1 computes.

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        architecture: ``appnp``, ``gcn``, ``gat`` or ``sage``.
        hidden: width of the hidden layer.
        lr: η.
        alpha: APPNP's teleport probability; the others have none.
        M: APPNP's propagation steps; the others have none.
        seed: of the initial weights.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        architecture: Architecture = "appnp",
        hidden: int = 64,
        lr: float = 0.5,
        alpha: float = 0.1,
        M: int = 10,
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(lr, lr_scheduler)
        self.save_hyperparameters(ignore=["lr_scheduler", "num_clients"])  # the command line offers the latter to all
        require(seed >= 0, "seed", "be at least 0", seed)
        require_choice("architecture", architecture, ("appnp", *PYG_NETS))
        self.sizes = (num_features, num_classes)
        draw = generator(seed, Stream.WEIGHTS)
        self.net: GraphNet
        if architecture == "appnp":
            self.net = APPNPNet(num_features, num_classes, draw, hidden, alpha, M)
        else:
            self.net = PYG_NETS[architecture](num_features, num_classes, draw, hidden)
        self.architecture = architecture
        self._samples: Samples | None = None
        self._weights: Weights = {}
        self._gradient: tuple[Tensor, ...] = ()

    def prepare(self, graph: ClientGraph) -> None:
        """Refuse graphs that the network cannot read, and arrange the samples of others."""
        require_fit(graph, *self.sizes)
        counts = graph.counts()
        require(
            bool((counts == 1).all()),
            "graph",
            "have one sample per client for a centralised network",
            f"{int(counts.max())} samples at client {int(counts.argmax())}",
        )
        require(
            graph.edge_weight is None or self.net.takes_weights,
            "graph",
            f"have no edge weights for {self.architecture}, which takes none",
            graph,
        )
        self._samples = Samples.of(graph, self.net)

    @property
    def samples(self) -> Samples:
        """The data as the network reads them."""
        assert self._samples is not None, "the samples exist once the data are set up"
        return self._samples

    def begin(self, rounds_done: int, saved: dict[str, Any]) -> None:
        """Start from the parameters; gradient descent has no other state."""
        self._look()

    def progress(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def run_round(self, lr: float) -> RoundResult:
        """One update, from whatever the parameters are now."""
        if not self._weights_are_the_rounds():
            self._look()
        with torch.no_grad():
            for parameter, slope in zip(self.parameters(), self._gradient, strict=True):
                parameter.add_(slope, alpha=-lr)
        metrics = self._look()
        require_finite(metrics, lr)
        return RoundResult(metrics, {"lr": lr})

    def predict_logits(self) -> Tensor:
        """f(X, G; W)."""
        with torch.no_grad():
            return self.samples.logits(self.net)

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split."""
        return self.samples.evaluator(self.predict_logits())

    def _look(self) -> dict[str, Metrics]:
        """One pass forth and back: metrics of the parameters, and the gradient that the next update will take."""
        samples = self.samples
        logits = samples.logits(self.net)
        loss = samples.loss(logits)
        self._gradient = torch.autograd.grad(loss, list(self.parameters()))
        self._weights = {name: weight.clone() for name, weight in self.current_weights().items()}
        return samples.evaluator(logits.detach())

    def last_weights(self) -> Weights:
        """W after the last update."""
        return self._weights


@dataclass(frozen=True, eq=False)
class Samples:
    """A graph of N clients with a sample each, as a network reads it.

    Args:
        x: features by client ``[N, d]``.
        edges: the network's edges.
        client: owner of each sample ``[N]``.
        train: the training samples ``[K]``.
        label: their classes ``[K]``.
        weight: of their losses ``[K]``; ``None`` means 1.
        evaluator: of logits by sample.
    """

    x: Tensor
    edges: Edges
    client: Tensor
    train: Tensor
    label: Tensor
    weight: Tensor | None
    evaluator: Evaluator

    @classmethod
    def of(cls, graph: ClientGraph, net: GraphNet) -> Samples:
        """Arrange the samples of a graph."""
        train = TrainingSet.of(graph).sample.flatten()
        x = graph.x[graph.client.argsort()]
        weight = None if graph.weight is None else graph.weight[train]
        return cls(x, net.edges(graph), graph.client, train, graph.y[train], weight, Evaluator(graph))

    def logits(self, net: GraphNet) -> Tensor:
        """Logits by sample ``[N, c]``."""
        return net(self.x, self.edges)[self.client]

    def loss(self, logits: Tensor) -> Tensor:
        """Mean over the training samples of their weighted losses."""
        if self.weight is None:
            return F.cross_entropy(logits[self.train], self.label)
        return (self.weight * F.cross_entropy(logits[self.train], self.label, reduction="none")).mean()


def require_finite(metrics: dict[str, Metrics], lr: float) -> None:
    """Stop where training has diverged."""
    loss = metrics["train"].loss
    if not math.isfinite(loss):
        raise DivergedError(f"lr must be small enough for a finite training loss, got {lr}: the loss became {loss}.")


def require_fit(graph: ClientGraph, num_features: int, num_classes: int) -> None:
    """Refuse a graph of other sizes than the model was made for."""
    require(
        (graph.num_features, graph.num_classes) == (num_features, num_classes),
        "graph",
        f"have {num_features} features and {num_classes} classes, as the model has",
        graph,
    )
