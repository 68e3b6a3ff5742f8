"""Edges of a client graph as PyG's layers take them."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph


def normalized(graph: ClientGraph) -> tuple[Tensor, Tensor]:
    """P = D̂^{-1/2}(A+I)D̂^{-1/2} as ``[2, edges + N]`` and ``[edges + N]``; A holds the edge weights, if any."""
    index, weight = gcn_norm(graph.edge_index, graph.edge_weight, graph.num_clients, dtype=graph.x.dtype)
    return index, weight


def unweighted(graph: ClientGraph, reader: str) -> Tensor:
    """Both directions of every edge ``[2, edges]``, for a network that has no use for weights."""
    usable = graph.edge_weight is None
    require(usable, "graph", f"have no edge weights for {reader}, which takes none", graph)
    return graph.edge_index
