"""Graphs and engines for the tests of baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from graph_builders import random_clients

from gfl_lightning.baselines.central import CentralDescent
from gfl_lightning.baselines.local_mlps import LocalModels
from gfl_lightning.baselines.networks.appnp_net import APPNPNet
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.baselines.networks.gat import GAT
from gfl_lightning.baselines.networks.gcn import GCN
from gfl_lightning.baselines.networks.graph_sage import GraphSAGE
from gfl_lightning.engine.engine import Engine
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Weights

ARCHITECTURES: dict[str, Architecture] = {
    "appnp": APPNPNet(16),
    "gcn": GCN(16),
    "gat": GAT(16),
    "sage": GraphSAGE(16),
}
ENGINES = [*ARCHITECTURES, "mlps"]


def nodes(edge_weights: bool = False, d: int = 6, dtype: torch.dtype = torch.float32) -> ClientGraph:
    """A small graph with one sample per client, whose rows are not in the order of the clients."""
    graph = random_clients("dnc", N=14, d=d, dtype=dtype)
    rows = torch.randperm(14, generator=torch.Generator().manual_seed(5))
    columns = {name: getattr(graph, name)[rows] for name in ("x", "y", "client", "split", "shared")}
    return replace(graph, **columns, edge_weight=graph.edge_weight if edge_weights else None)


def clients(dtype: torch.dtype = torch.float32) -> ClientGraph:
    """Ten clients with one to five samples each, in mixed order; all of them train."""
    return random_clients("sc", dtype=dtype)


def with_losses_weighted(graph: ClientGraph) -> ClientGraph:
    generator = torch.Generator().manual_seed(9)
    return replace(graph, weight=0.2 + 3 * torch.rand(graph.num_samples, generator=generator).to(graph.x))


def engine(name: str, seed: int = 0, lr: float = 0.2, dtype: torch.dtype = torch.float32) -> Engine[Any]:
    """One of ENGINES, on a graph with weighted losses."""
    if name == "mlps":
        return LocalModels(with_losses_weighted(clients(dtype)), 8, lr, batch_size=2, seed=seed)
    return CentralDescent(with_losses_weighted(nodes(dtype=dtype)), ARCHITECTURES[name], lr, seed)


def same_bits(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
