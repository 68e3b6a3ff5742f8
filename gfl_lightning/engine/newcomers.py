"""Clients that join after training: some are taken out of a network, and come back with rows and edges but no label."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.utils import subgraph

from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.graphs.client_graph import ClientGraph, Split

SHARE, LEAST = 0.2, 10


@dataclass(frozen=True, eq=False)
class Newcomers:
    """A network before and after some clients join.

    Args:
        graph: the network as it is, everybody's labels known.
        stay: the clients that are there from the start ``[N]``.
        without: the network of those, which is trained on.
        whole: the network with them, only whose test samples are labelled.
        rows: the test samples of newcomers ``[S]``.
    """

    graph: ClientGraph
    stay: Tensor
    without: ClientGraph
    whole: ClientGraph
    rows: Tensor

    @classmethod
    def of(cls, graph: ClientGraph, seed: int) -> Newcomers | None:
        """A fifth of the clients as newcomers; nobody where there are fewer than ten, or classes would be lost."""
        N = graph.num_clients
        joins = torch.zeros(N, dtype=torch.bool)
        joins[torch.randperm(N, generator=generator(seed, Stream.SHARING_CLIENTS, 0, 2))[: round(SHARE * N)]] = True
        rows = joins.to(graph.client.device)[graph.client]
        if N < LEAST or not bool((rows & graph.mask(Split.TEST)).any()):
            return None
        before = without_clients(graph, joins)
        whole = replace(graph, split=torch.where(graph.mask(Split.TEST), graph.split, int(Split.NONE)))
        trains = bool(before.mask(Split.TRAIN).any()) and bool(before.mask(Split.VAL).any())
        if not trains or len(before.untrained_classes):
            return None
        return cls(graph, ~joins, before, whole, rows & graph.mask(Split.TEST))


def without_clients(graph: ClientGraph, leave: Tensor) -> ClientGraph:
    """The network of the clients that do not ``leave [N]``."""
    stay = (~leave).nonzero().flatten()
    number = torch.full((graph.num_clients,), -1)
    number[stay] = torch.arange(len(stay))
    edges, weight = subgraph(stay, graph.edge_index, graph.edge_weight, relabel_nodes=True, num_nodes=graph.num_clients)
    kept = ~leave[graph.client]
    columns = {name: getattr(graph, name)[kept] for name in ("x", "y", "split", "shared", "weight")}
    client = number[graph.client[kept]]
    return replace(graph, **columns, client=client, edge_index=edges, edge_weight=weight)
