"""λ_max(B_N L†) against a dense pseudo-inverse, closed forms and the paper's four graphs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from graph_builders import client_graphs, nodes
from hypothesis import given, settings

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.theory import connectivity as module
from gfl_lightning.theory.connectivity import connectivity


def by_pseudo_inverse(graph: ClientGraph) -> float:
    N = graph.num_clients
    A = np.zeros((N, N))
    for e, (i, j) in enumerate(graph.edge_index.T.tolist()):
        A[i, j] = 1 if graph.edge_weight is None else graph.edge_weight[e]
    B = np.eye(N) / N - np.ones((N, N)) / N**2
    return float(np.linalg.eigvals(B @ np.linalg.pinv(np.diag(A.sum(1)) - A, rcond=1e-9)).real.max())


@given(client_graphs())
@settings(max_examples=60, deadline=None)
def test_matches_the_pseudo_inverse(graph: ClientGraph) -> None:
    found = connectivity(graph)
    if found.components == 1:
        assert found.lambda_max == pytest.approx(by_pseudo_inverse(graph), rel=1e-6)
    else:
        assert found.lambda_max == math.inf


@pytest.mark.parametrize("seed", range(3))
def test_sparse_solver_matches_the_dense_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = SC(num_clients=400, degree=10, train_samples=1, val_samples=1, test_samples=0, graph_seed=seed).graph
    dense = connectivity(graph).lambda_2
    monkeypatch.setattr(module, "DENSE_LIMIT", 10)
    assert connectivity(graph).lambda_2 == pytest.approx(dense, rel=1e-8)


def test_long_path_has_its_closed_form() -> None:
    N = 3000
    graph = nodes(N, torch.stack([torch.arange(N - 1), torch.arange(1, N)]))
    assert connectivity(graph).lambda_2 == pytest.approx(4 * math.sin(math.pi / (2 * N)) ** 2, rel=1e-6)


def test_complete_graph_and_chosen_clients() -> None:
    edges = [(i, j) for i in range(5) for j in range(i)] + [(5, 0)]
    graph = nodes(6, edges)
    assert connectivity(graph, torch.arange(5)).lambda_max == pytest.approx(1 / 25)
    assert connectivity(graph, torch.tensor([3])).lambda_max == 0
    for same in (torch.tensor([4, 0, 1, 2, 3, 3, 0]), torch.tensor([True] * 5 + [False])):
        assert connectivity(graph, same).lambda_max == pytest.approx(1 / 25)
    with pytest.raises(InputError, match=r"clients must lie in 0..5, got \(0, 9\)"):
        connectivity(graph, torch.tensor([0, 9]))
    with pytest.raises(InputError, match=r"clients must name at least one client, got \[\]"):
        connectivity(graph, torch.tensor([], dtype=torch.int64))


def test_disconnected_is_said_clearly() -> None:
    found = connectivity(nodes(4, [(0, 1), (2, 3)]))
    assert found.lambda_max == math.inf
    assert str(found) == "λ_max(B_N L†) is infinite: the 4 clients form 2 components that share nothing"
    assert str(connectivity(nodes(2, [(0, 1)]))) == "λ_max(B_N L†) = 0.25 (2 clients, λ₂ = 2)"


@pytest.mark.parametrize(("degree", "printed"), [(25, 1.76e-3), (15, 4.17e-3), (10, 1.09e-2), (5, 7.52e-2)])
def test_orders_of_magnitude_of_the_paper(degree: float, printed: float) -> None:
    drawn = [
        connectivity(SC(num_clients=40, degree=degree, lam=2, mu=1, graph_seed=s).graph).lambda_max for s in range(20)
    ]
    assert printed / 3 < np.median(drawn) < printed * 3
