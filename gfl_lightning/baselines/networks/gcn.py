"""Graph convolutions (Kipf and Welling)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch_geometric.nn import GCNConv

from gfl_lightning.baselines.networks.architecture import WIDEST, Architecture, require_sizes
from gfl_lightning.baselines.networks.edges import normalized
from gfl_lightning.baselines.networks.graph_net import Edges
from gfl_lightning.baselines.networks.two_layers import TwoLayers, drawing_from
from gfl_lightning.checks import require_count
from gfl_lightning.graphs.client_graph import ClientGraph


@dataclass(frozen=True)
class GCN(Architecture):
    """Z = P relu(P X W1ᵀ) W2ᵀ with P = D̂^{-1/2}(A+I)D̂^{-1/2}.

    >>> net = GCN(hidden=16).build(100, 7, torch.Generator().manual_seed(0))
    >>> [tuple(weight.shape) for weight in net.parameters()]
    [(16, 100), (7, 16)]

    Args:
        hidden: width of the hidden layer.
    """

    hidden: int = 64

    def __post_init__(self) -> None:
        require_count("hidden", self.hidden, most=WIDEST)

    def build(self, num_features: int, num_classes: int, generator: torch.Generator) -> GCNModule:
        """The network."""
        require_sizes(num_features, num_classes)
        with drawing_from(generator):
            first = GCNConv(num_features, self.hidden, bias=False, normalize=False)
            second = GCNConv(self.hidden, num_classes, bias=False, normalize=False)
        return GCNModule(first, second, torch.relu)


class GCNModule(TwoLayers):
    """Two graph convolutions.

    >>> GCN().build(4, 3, torch.Generator().manual_seed(0)).feature_weights()
    ['first.lin.weight']
    """

    def edges(self, graph: ClientGraph) -> Edges:
        """P."""
        return normalized(graph)
