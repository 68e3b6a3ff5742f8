"""The same options give the same graphs for good: digests of what commit 6109371 made, from its functions."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.karate import KarateClub
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.graphs.datasets.subcora import SubCora, SubCoraRecipe

DRAWN = [
    (DNC(), "70cda03c0ee735d3"),
    (DNC(graph_seed=3, repetition=2), "15f4b6e4e0b091f5"),
    (DNC(60, 10, 6, 1.5, 2, 1, 4), "d828e8cc0c20bdff"),
    (SNC(), "bbc77ff06e90ff26"),
    (SNC(graph_seed=3, repetition=2), "1959e17aa3e21a8b"),
    (SNC(60, 10, 6, 1.5, 2, 3, 1, 4), "1d06539534b24a76"),
    (SC(), "1d2cdf73e9f79d50"),
    (SC(graph_seed=3, repetition=2), "bd1b36582b1a35b3"),
    (SC(30, 10, 6, 1.5, 2, 3, 2, 4, 1, 4), "67fc885929c7ce71"),
    (KarateClub(), "970ca71ecc946add"),
    (KarateClub(1), "984155a32c7dccf4"),
]
PIECES = [
    (SubCora(), "0e92dd0d72a1d1f4"),
    (SubCora(2, 1), "e7a886ac823d02e7"),
    (SubCora(1, recipe=SubCoraRecipe(clients=250)), "fa5d74d762608826"),
]


def digest(graph: ClientGraph) -> str:
    """Of the name, type, shape and bytes of every column but the weights, which are 1 in all these graphs."""
    found = hashlib.sha256(str(graph.num_classes).encode())
    for name in ("x", "y", "client", "split", "shared", "edge_index"):
        column = getattr(graph, name)
        found.update(f"{name} {column.dtype} {list(column.shape)}".encode())
        found.update(column.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(("data", "expected"), DRAWN, ids=lambda value: str(value)[:40])
def test_drawn_graphs_keep_their_bits(data: DataSet, expected: str) -> None:
    graph = data.make()
    assert digest(graph) == expected
    assert graph.edge_weight is None
    assert torch.equal(graph.weight, torch.ones(graph.num_samples))


@pytest.mark.parametrize(("data", "expected"), PIECES, ids=lambda value: str(value)[:40])
def test_pieces_of_cora_keep_their_bits(data: SubCora, expected: str, planetoid_root: Path, tmp_path: Path) -> None:
    graph = replace(data, root=planetoid_root, cache=tmp_path).make()
    assert digest(graph) == expected
    assert graph.edge_weight is None


def test_the_digest_sees_every_column() -> None:
    graph = SC(num_clients=20, num_features=10).graph
    changed = [
        replace(graph, x=graph.x.double()),
        replace(graph, y=graph.y.flip(0)),
        replace(graph, client=graph.client.flip(0)),
        replace(graph, split=graph.split.flip(0)),
        replace(graph, edge_index=graph.edge_index.flip(1)),
        replace(graph, shared=torch.ones_like(graph.shared)),
        replace(graph, num_classes=5),
    ]
    assert len({digest(other) for other in (graph, *changed)}) == 8
