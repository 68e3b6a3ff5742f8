"""The client graph: what it accepts, what it refuses and in which words, and its conversions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
import torch
from graph_builders import assert_same_bits, client_graphs, nodes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph, Split


def ragged(**changes: Any) -> ClientGraph:
    """Three clients on a path with 1, 2 and 3 samples; ``changes`` replace columns."""
    columns: dict[str, Any] = {
        "x": torch.randn(6, 4, generator=torch.Generator().manual_seed(0)),
        "y": torch.tensor([0, 1, 1, 0, 1, -1]),
        "client": torch.tensor([2, 1, 0, 2, 1, 2]),
        "split": torch.tensor([0, 0, 1, 2, 2, -1], dtype=torch.int8),
        "shared": torch.tensor([True, True, True, False, False, True]),
        "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "num_classes": 2,
    }
    return ClientGraph(**(columns | changes))


def test_counts_and_print() -> None:
    graph = ragged()
    assert (graph.num_clients, graph.num_samples, graph.num_features, graph.num_edges) == (3, 6, 4, 2)
    assert graph.counts().tolist() == [1, 2, 3]
    assert graph.counts(graph.shared).tolist() == [1, 1, 2]
    assert graph.training_clients.tolist() == [1, 2]
    assert repr(graph) == (
        "ClientGraph(3 clients, 2 edges, 6 samples (1 to 3 per client), 4 features, 2 classes; "
        "train 2, val 1, test 2; 2 clients train)"
    )


REFUSALS = [
    ({"x": torch.zeros(6)}, r"x must be a floating-point matrix \[samples, d\], got"),
    ({"x": torch.zeros(6, 4, dtype=torch.int64)}, "x must be a floating-point matrix"),
    ({"x": torch.zeros(6, 0)}, r"x must have at least one sample and one feature, got \[6, 0\]"),
    ({"x": torch.full((6, 4), torch.nan)}, r"x must be finite, got '24 entries that are not, the first at \[0, 0\]'"),
    ({"y": torch.zeros(5, dtype=torch.int64)}, r"y must have one entry per sample \(6\), got \[5\]"),
    ({"y": torch.zeros(6)}, "y must be of type torch.int64, got torch.float32"),
    ({"y": torch.tensor([0, 1, 2, 0, 1, 0])}, r"y must lie in 0..1 \(-1 only where split is NONE\), got \[2\]"),
    ({"y": torch.tensor([0, -1, 1, 0, 1, 0])}, r"y must lie in 0..1 .*, got \[-1\]"),
    ({"client": torch.tensor([2, 2, 0, 2, 2, 2])}, "client must give every client a sample, got 'none for client 1'"),
    ({"client": torch.tensor([2, 1, 0, 2, 1, -1])}, "client must be at least 0, got -1"),
    ({"split": torch.tensor([0, 0, 1, 2, 2, 3], dtype=torch.int8)}, "split must hold Split values -1, 0, 1, 2, got"),
    ({"split": torch.zeros(6)}, "split must be of type torch.int64, got torch.float32"),
    ({"shared": torch.zeros(6, dtype=torch.bool)}, "shared must give every client a shared sample, got 'none for"),
    ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
    ({"edge_index": torch.tensor([[0, 1], [1, 3]])}, r"edge_index must name clients in 0..2, got \(0, 3\)"),
    ({"edge_index": torch.tensor([0, 1])}, r"edge_index must be an int64 tensor \[2, edges\], got"),
    ({"edge_index": torch.tensor([[0, 1, 1], [1, 0, 1]])}, "edge_index must have no self-loops .*, got '1 self-loops'"),
    ({"edge_index": torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])}, "edge_index must have no repeated edges"),
    ({"edge_index": torch.tensor([[0], [1]])}, "edge_index must hold both directions of every edge"),
    ({"edge_weight": torch.ones(3)}, r"edge_weight must be floating point with one entry per edge \(4\), got"),
    ({"edge_weight": torch.tensor([1.0, 1.0, -2.0, -2.0])}, "edge_weight must be positive and finite, got"),
    ({"edge_weight": torch.tensor([1.0, 1.0, torch.inf, torch.inf])}, "edge_weight must be positive and finite, got"),
    ({"edge_weight": torch.tensor([1.0, 2.0, 3.0, 3.0])}, "edge_weight must be equal in both directions"),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSALS)
def test_refusals(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ragged(**changes)


def test_from_edges_makes_any_edge_list_a_simple_undirected_graph() -> None:
    graph = nodes(4, [(0, 1), (1, 0), (2, 2), (3, 1), (3, 1)], weight=[1.0, 3.0, 9.0, 5.0, 7.0])
    assert graph.edge_index.tolist() == [[0, 1, 1, 3], [1, 0, 3, 1]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.0, 2.0, 6.0, 6.0]


def test_from_data_refuses_masks_that_are_none() -> None:
    data = ragged().to_data()
    data.train_mask = torch.tensor([0, 1])
    with pytest.raises(InputError, match=r"masks must be boolean with one entry per sample \(6\), got"):
        ClientGraph.from_data(data)


def test_from_edges_refuses_unknown_clients() -> None:
    with pytest.raises(InputError, match=r"edge_weight must have one entry per edge, got \[3\]"):
        nodes(3, [(0, 1)], weight=[1.0, 1.0, 1.0])
    with pytest.raises(InputError, match=r"edge_index must name clients in 0..2, got \(0, 7\)"):
        nodes(3, [(0, 7)])


@given(client_graphs())
@settings(max_examples=50, deadline=None)
def test_edges_are_those_of_networkx_and_data_round_trips(graph: ClientGraph) -> None:
    reference = nx.Graph()
    reference.add_edges_from(graph.edge_index.T.tolist())
    assert reference.number_of_edges() == graph.num_edges
    assert_same_bits(ClientGraph.from_data(graph.to_data()), graph)


def test_from_data_takes_each_node_as_a_client() -> None:
    data = Data(x=torch.eye(3), y=torch.tensor([0, 1, 1]), edge_index=torch.tensor([[0, 1], [1, 2]]))
    data.train_mask, data.test_mask = torch.tensor([True, False, False]), torch.tensor([False, False, True])
    graph = ClientGraph.from_data(data)
    assert graph.split.tolist() == [Split.TRAIN, Split.NONE, Split.TEST]
    assert graph.counts().tolist() == [1, 1, 1]
    assert bool(graph.shared.all())
    data.val_mask = torch.tensor([True, False, False])
    with pytest.raises(InputError, match="train_mask, val_mask and test_mask must not overlap, got '1 samples"):
        ClientGraph.from_data(data)


@pytest.mark.parametrize("missing", ["x", "y", "edge_index"])
def test_from_data_names_what_is_missing(missing: str) -> None:
    data = ragged().to_data()
    data[missing] = None
    with pytest.raises(InputError, match=f"data.{missing} must be present, got None"):
        ClientGraph.from_data(data)


def test_moves_and_converts() -> None:
    graph = ragged(edge_weight=torch.tensor([1.0, 1.0, 2.0, 2.0]))
    double = graph.to(torch.float64)
    assert double.x.dtype == torch.float64
    assert double.edge_weight is not None
    assert double.edge_weight.dtype == torch.float64
    assert double.y.dtype == torch.int64
    assert_same_bits(double.to(torch.float32), graph)


@given(client_graphs(), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_without_test_hides_test_labels_and_nothing_else(graph: ClientGraph, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.rand(graph.num_samples, generator=generator, dtype=torch.float64) + 0.5
    first = torch.tensor([int((graph.client == k).nonzero()[0]) for k in range(graph.num_clients)])
    shared = (torch.rand(graph.num_samples, generator=generator) < 0.5).index_fill(0, first, True)
    graph = replace(graph, weight=weight, shared=shared)
    view = graph.without_test()
    rows = []
    for s in range(graph.num_samples):
        if graph.split[s] != Split.TEST:
            rows.append((s, int(graph.y[s]), int(graph.split[s]), float(graph.weight[s])))
        elif graph.shared[s]:
            rows.append((s, -1, int(Split.NONE), 1.0))  # the weight of a class would tell the label
    kept = [row[0] for row in rows]
    for name in ("x", "client", "shared"):
        assert torch.equal(getattr(view, name), getattr(graph, name)[kept])
    assert list(zip(kept, view.y.tolist(), view.split.tolist(), view.weight.tolist(), strict=True)) == rows
    assert [column.dtype for column in (view.y, view.split, view.weight)] == [torch.int64, torch.int8, torch.float64]
    assert torch.equal(view.edge_index, graph.edge_index)
    assert view.edge_weight is graph.edge_weight
    assert_same_bits(view.without_test(), view)


def test_is_immutable() -> None:
    graph = ragged()
    with pytest.raises(AttributeError):
        graph.num_classes = 3  # type: ignore[misc]
    assert replace(graph, num_classes=3).num_classes == 3


def test_repeated_weighted_edges_stay_symmetric_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        edges = torch.randint(4, (2, 40), generator=generator)
        graph = nodes(4, edges, (torch.rand(40, generator=generator) + 0.1).tolist())
        assert graph.edge_weight is not None
        reverse = {(j, i): w for (i, j), w in zip(graph.edge_index.T.tolist(), graph.edge_weight.tolist(), strict=True)}
        assert all(
            reverse[i, j] == w
            for (i, j), w in zip(graph.edge_index.T.tolist(), graph.edge_weight.tolist(), strict=True)
        )


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_edges_in_a_narrow_type_are_those_of_the_wide_one(kind: torch.dtype) -> None:
    N = 100  # N² does not fit 8 bits
    ring = torch.stack([torch.arange(N), torch.arange(1, N + 1) % N])
    column = torch.arange(N)
    columns: dict[str, Any] = {"x": torch.eye(N), "y": column % 2, "client": column, "split": column % 3}
    columns |= {
        "shared": column >= 0,
        "num_classes": 2,
        "edge_weight": 1 + torch.rand(N, generator=torch.Generator().manual_seed(0)),
    }
    wide = ClientGraph.from_edges(edge_index=ring, **columns)
    narrow = ClientGraph.from_edges(edge_index=ring.to(kind), **columns)
    assert torch.equal(narrow.edge_index, wide.edge_index)
    assert torch.equal(narrow.edge_weight, wide.edge_weight)
