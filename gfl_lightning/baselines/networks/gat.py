"""Graph attention (Veličković and others)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional as F
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops

from gfl_lightning.baselines.networks.architecture import WIDEST, Architecture, require_sizes
from gfl_lightning.baselines.networks.edges import unweighted
from gfl_lightning.baselines.networks.graph_net import Edges
from gfl_lightning.baselines.networks.two_layers import TwoLayers, drawing_from
from gfl_lightning.checks import require, require_count
from gfl_lightning.graphs.client_graph import ClientGraph


@dataclass(frozen=True)
class GAT(Architecture):
    """Attention over neighbours and oneself: 8 heads side by side, ELU, then one head.

    The paper's "8 heads × 8, then 1 head × 64" is read as 8 heads of 8 units whose 64 outputs enter one head with
    the c classes as its units, as in the original GAT.

    >>> net = GAT(hidden=16).build(100, 7, torch.Generator().manual_seed(0))
    >>> net.get_parameter("first.att_src").shape
    torch.Size([1, 8, 2])

    Args:
        hidden: width of all heads of the first layer together.
    """

    HEADS: ClassVar[int] = 8
    hidden: int = 64

    def __post_init__(self) -> None:
        require_count("hidden", self.hidden, most=WIDEST)
        whole = self.hidden % self.HEADS == 0
        require(whole, "hidden", f"be a multiple of {self.HEADS}, the number of heads", self.hidden)

    def build(self, num_features: int, num_classes: int, generator: torch.Generator) -> GATModule:
        """The network."""
        require_sizes(num_features, num_classes)
        with drawing_from(generator):
            first = GATConv(num_features, self.hidden // self.HEADS, self.HEADS, bias=False, add_self_loops=False)
            second = GATConv(self.hidden, num_classes, 1, bias=False, add_self_loops=False)
        return GATModule(first, second, F.elu)


class GATModule(TwoLayers):
    """Two layers of attention.

    >>> GAT().build(4, 3, torch.Generator().manual_seed(0)).feature_weights()
    ['first.lin.weight']
    """

    def edges(self, graph: ClientGraph) -> Edges:
        """The edges and a self-loop at every client."""
        return (add_self_loops(unweighted(graph, "GAT"), num_nodes=graph.num_clients)[0],)
