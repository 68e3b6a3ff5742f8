"""What a centralised network predicts, also where nobody trains."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.checks import require
from gfl_lightning.engine.engine import Predictor, require_weights
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Shapes, Weights


class CentralPredictor(Predictor):
    """Z = f(X, G; W) on a graph with one sample per client; W is a dict by the network's names of its parameters.

    >>> from gfl_lightning.baselines.networks.gcn import GCN
    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> CentralPredictor(KarateClub().graph, GCN(hidden=8)).shapes
    {'first.lin.weight': (8, 34), 'second.lin.weight': (4, 8)}

    Args:
        graph: the clients and their samples.
        architecture: of the network.
    """

    def __init__(self, graph: ClientGraph, architecture: Architecture) -> None:
        counts = graph.counts()
        require(
            bool((counts == 1).all()),
            "graph",
            "have one sample per client for a centralised network",
            f"{int(counts.max())} samples at client {int(counts.argmax())}",
        )
        self.graph, self.architecture = graph, architecture
        net = architecture.build(graph.num_features, graph.num_classes, torch.Generator())
        self._net = net.to(graph.x.device, graph.x.dtype)
        self.shapes: Shapes = {name: tuple(weight.shape) for name, weight in net.named_parameters()}
        self._x, self._edges = graph.x[graph.client.argsort()], net.edges(graph)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits of every sample ``[S, c]``; differentiable in the weights."""
        require_weights(weights, self.shapes)
        return functional_call(self._net, weights, (self._x, self._edges))[self.graph.client]
