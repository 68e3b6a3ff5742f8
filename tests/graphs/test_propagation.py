"""Ã against PyG's layers and a dense polynomial; rows, diagonal and hops against Ã."""

from __future__ import annotations

import pytest
import torch
from graph_builders import client_graphs, nodes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import nn as pyg

from gfl_lightning.checks import InputError
from gfl_lightning.graphs import propagation as module
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.propagation import hops, normalized_adjacency, propagation
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.sgc import SGC


def dense_P(graph: ClientGraph) -> Tensor:
    """P by its definition, with loops over edges."""
    A = torch.eye(graph.num_clients, dtype=torch.float64)
    for e, (i, j) in enumerate(graph.edge_index.T.tolist()):
        A[i, j] = 1 if graph.edge_weight is None else graph.edge_weight[e]
    D = torch.diag(A.sum(1) ** -0.5)
    return D @ A @ D


def dense_polynomial(P: Tensor, gamma: Tensor) -> Tensor:
    return torch.stack([g * torch.matrix_power(P, i) for i, g in enumerate(gamma)]).sum(0)


@given(client_graphs(), st.floats(0.01, 1), st.integers(1, 12))
@settings(max_examples=50, deadline=None)
def test_matches_pyg_and_the_dense_polynomial(graph: ClientGraph, alpha: float, M: int) -> None:
    H = torch.randn(graph.num_clients, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = propagation(graph, APPNP(alpha, M).gamma, torch.float64)
    layer = pyg.APPNP(M, alpha).double()
    torch.testing.assert_close(A.apply(H), layer(H, graph.edge_index, graph.edge_weight))
    dense = dense_polynomial(dense_P(graph), APPNP(alpha, M).gamma)
    torch.testing.assert_close(A.apply(H), dense @ H)
    torch.testing.assert_close(A.dense(), dense)
    torch.testing.assert_close(A.diagonal(), dense.diagonal())
    chosen = torch.arange(0, graph.num_clients, 2).flip(0)
    torch.testing.assert_close(A.rows(chosen), dense[chosen])
    torch.testing.assert_close(A.diagonal(chosen), dense.diagonal()[chosen])


@given(client_graphs(), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_sgc_matches_pyg_and_hops_are_powers(graph: ClientGraph, k: int) -> None:
    H = torch.randn(graph.num_clients, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = pyg.SGConv(3, 3, K=k, bias=False).double()
    with torch.no_grad():
        layer.lin.weight.copy_(torch.eye(3))
        expected = layer(H, graph.edge_index, graph.edge_weight)
    torch.testing.assert_close(propagation(graph, SGC(k).gamma, torch.float64).apply(H), expected)
    sequence = hops(normalized_adjacency(graph, torch.float64), H, k)
    assert sequence.shape == (k + 1, graph.num_clients, 3)
    for i, hop in enumerate(sequence):
        torch.testing.assert_close(hop, torch.matrix_power(dense_P(graph), i) @ H)


def test_coefficients_sum_to_one_and_identity_changes_nothing() -> None:
    for gamma in (APPNP().gamma, APPNP(1.0, 3).gamma, SGC().gamma, Identity().gamma):
        assert float(gamma.sum()) == pytest.approx(1, abs=1e-12)
    graph = DNC(num_clients=60).graph
    identity = propagation(graph, Identity().gamma)
    assert torch.equal(identity.apply(graph.x), graph.x)
    assert torch.equal(identity.diagonal(), torch.ones(60))
    assert identity.is_identity
    assert not propagation(graph, APPNP().gamma).is_identity


def test_chunks_do_not_change_rows_or_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = DNC(num_clients=60).graph
    A = propagation(graph, APPNP().gamma, torch.float64)
    whole, diagonal = A.dense(), A.diagonal()
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 60 * 7)
    torch.testing.assert_close(A.rows(torch.arange(60)), whole)
    torch.testing.assert_close(A.diagonal(), diagonal)


def test_isolated_client_keeps_its_own_representation() -> None:
    graph = nodes(3, [(0, 1)])
    A = propagation(graph, APPNP().gamma, torch.float64).dense()
    assert float(A[2, 2]) == pytest.approx(1)
    assert A[2, :2].tolist() == [0, 0]


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    for alpha in (0.0, -0.1, 1.1):
        with pytest.raises(InputError, match=rf"alpha must lie in \(0, 1\], got {alpha}"):
            APPNP(alpha)
    with pytest.raises(InputError, match="M must be at least 1, got 0"):
        APPNP(0.1, 0)
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        SGC(0)
    with pytest.raises(InputError, match="gamma must be finite"):
        propagation(nodes(2, [(0, 1)]), torch.tensor([torch.nan]))
    monkeypatch.setattr(module, "DENSE_LIMIT", 2)
    with pytest.raises(InputError, match="num_clients must be at most 2 for a dense Ã, got 3"):
        propagation(nodes(3, [(0, 1)]), APPNP().gamma).dense()
