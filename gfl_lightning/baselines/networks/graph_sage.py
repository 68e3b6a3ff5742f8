"""Means over neighbours beside oneself (Hamilton and others)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch_geometric.nn import SAGEConv

from gfl_lightning.baselines.networks.architecture import WIDEST, Architecture, require_sizes
from gfl_lightning.baselines.networks.edges import unweighted
from gfl_lightning.baselines.networks.graph_net import Edges
from gfl_lightning.baselines.networks.two_layers import TwoLayers, drawing_from
from gfl_lightning.checks import require_count
from gfl_lightning.graphs.client_graph import ClientGraph


@dataclass(frozen=True)
class GraphSAGE(Architecture):
    """Two layers x_k ↦ W_self x_k + W_near mean_{j ∈ 𝒩(k)} x_j, ReLU between them.

    >>> net = GraphSAGE(hidden=16).build(100, 7, torch.Generator().manual_seed(0))
    >>> [tuple(weight.shape) for weight in net.parameters()]
    [(16, 100), (16, 100), (7, 16), (7, 16)]

    Args:
        hidden: width of the hidden layer.
    """

    hidden: int = 64

    def __post_init__(self) -> None:
        require_count("hidden", self.hidden, most=WIDEST)

    def build(self, num_features: int, num_classes: int, generator: torch.Generator) -> GraphSAGEModule:
        """The network."""
        require_sizes(num_features, num_classes)
        with drawing_from(generator):
            first = SAGEConv(num_features, self.hidden, bias=False)
            second = SAGEConv(self.hidden, num_classes, bias=False)
        return GraphSAGEModule(first, second, torch.relu)


class GraphSAGEModule(TwoLayers):
    """Two layers of means.

    >>> GraphSAGE().build(4, 3, torch.Generator().manual_seed(0)).feature_weights()
    ['first.lin_l.weight', 'first.lin_r.weight']
    """

    def edges(self, graph: ClientGraph) -> Edges:
        """The edges as they are."""
        return (unweighted(graph, "GraphSAGE"),)
