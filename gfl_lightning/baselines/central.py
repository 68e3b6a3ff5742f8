"""Full-batch gradient descent of a graph neural network that sees the samples of all clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.baselines.networks import GAT, GCN, APPNPNet, Edges, GraphNet, GraphSAGE
from gfl_lightning.checks import require
from gfl_lightning.engine.evaluation import Evaluator, Metrics
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.federation import DivergedError
from gfl_lightning.federated.options import require_choice
from gfl_lightning.graphs.client_graph import ClientGraph

Architecture = Literal["appnp", "gcn", "gat", "sage"]
PYG_NETS: dict[str, type[GCN] | type[GAT] | type[GraphSAGE]] = {"gcn": GCN, "gat": GAT, "sage": GraphSAGE}


def network(
    architecture: Architecture,
    num_features: int,
    num_classes: int,
    hidden: int = 64,
    alpha: float = 0.1,
    M: int = 10,
    seed: int = 0,
) -> GraphNet:
    """A network of an architecture with the initial weights of a seed; α and M are APPNP's, the others have none."""
    require(seed >= 0, "seed", "be at least 0", seed)
    require_choice("architecture", architecture, ("appnp", *PYG_NETS))
    draw = generator(seed, Stream.WEIGHTS)
    if architecture == "appnp":
        return APPNPNet(num_features, num_classes, draw, hidden, alpha, M)
    return PYG_NETS[architecture](num_features, num_classes, draw, hidden)


@dataclass(frozen=True, eq=False)
class CentralSamples:
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
    def of(cls, graph: ClientGraph, net: GraphNet) -> CentralSamples:
        """Arrange the samples of a graph; refuse one that the network cannot read."""
        counts = graph.counts()
        require(
            bool((counts == 1).all()),
            "graph",
            "have one sample per client for a centralised network",
            f"{int(counts.max())} samples at client {int(counts.argmax())}",
        )
        require(
            graph.edge_weight is None or net.takes_weights,
            "graph",
            f"have no edge weights for {net.name}, which takes none",
            graph,
        )
        train = TrainingSet.of(graph).sample.flatten()
        x = graph.x[graph.client.argsort()]
        weight = None if graph.weight is None else graph.weight[train]
        return cls(x, net.edges(graph), graph.client, train, graph.y[train], weight, Evaluator(graph))

    def logits(self, net: GraphNet) -> Tensor:
        """Logits by sample ``[N, c]``."""
        return net(self.x, self.edges)[self.client]

    def look(self, net: GraphNet) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One pass forth and back: logits by sample, and the gradient of the mean training loss by parameter."""
        logits = self.logits(net)
        if self.weight is None:
            loss = F.cross_entropy(logits[self.train], self.label)
        else:
            loss = (self.weight * F.cross_entropy(logits[self.train], self.label, reduction="none")).mean()
        return logits.detach(), torch.autograd.grad(loss, list(net.parameters()))


@torch.no_grad()
def descend(net: GraphNet, gradient: tuple[Tensor, ...], lr: float) -> None:
    """W ← W − η ∇."""
    for parameter, slope in zip(net.parameters(), gradient, strict=True):
        parameter.add_(slope, alpha=-lr)


@torch.no_grad()
def on_span(net: GraphNet, samples: CentralSamples) -> CentralSamples:
    """The same training with N features instead of d > N, exactly: the features in coordinates of their span.

    Write Xᵀ = Q R with orthonormal columns Q ``[d, N]``. A network meets X through W X ᵀ= (W Q) R alone, and gradient
    descent moves W within the span of Q, so that W Q takes the same steps on the features Rᵀ ``[N, N]``.
    """
    N, d = samples.x.shape
    if d <= N:
        return samples
    Q, R = torch.linalg.qr(samples.x.double().T)
    for weight in net.feature_weights():
        weight.data = (weight.double() @ Q).to(weight.dtype)
    columns = {**vars(samples), "x": R.T.to(samples.x.dtype).contiguous()}
    return CentralSamples(**columns)


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
