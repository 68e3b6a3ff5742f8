"""What aggregates tell a fellow client, against the Gaussian mechanism written out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import mpmath
import pytest
import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import propagation
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.privacy.mixing import direct_ratio, leverage


def everyone(N: int, seed: int) -> Tensor:
    A = torch.rand(N, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (A + A.T).fill_diagonal_(0)


def revealed(R: Tensor, own: Tensor, j: int, S: Sequence[int]) -> float:
    """max over linear views a of (aᵀ R_j)² / Var(aᵀ R e), R being the training rows and S's own, with e_S known."""
    R = torch.cat([R, own])
    others = R[:, [column for column in range(R.shape[1]) if column not in S]]
    return float(R[:, j] @ torch.linalg.pinv(others @ others.T, rtol=1e-10) @ R[:, j])


def exact(A: Tensor, K: int, m: int) -> list[float]:
    """The worst over coalitions of m fellows, the first K clients training."""
    N = len(A)
    found = [0.0] * N
    for S in combinations(range(N), m):
        for j in set(range(N)) - set(S):
            found[j] = max(found[j], revealed(A[:K], A[list(S)], j, S))
    return found


@pytest.mark.parametrize("m", [1, 2, 3])
def test_leverage_is_the_worst_over_coalitions_of_their_joint_view(m: int) -> None:
    for seed, (K, N) in enumerate([(3, 9), (2, 7), (1, 6)]):
        A = everyone(N, seed)
        expected = torch.tensor(exact(A, K, m), dtype=torch.float64)
        assert torch.allclose(leverage(A, torch.arange(K), m), expected, atol=1e-7)


def test_more_colluding_fellows_see_more() -> None:
    A = everyone(9, 3)
    few, more, many = (leverage(A, torch.arange(2), m) for m in (1, 2, 4))
    assert bool((few <= more + 1e-12).all() and (more <= many + 1e-12).all())
    assert float(few.mean()) < float(many.mean())


@pytest.mark.parametrize("weight", [1e-3, 1e-6, 1e-9, 1e-12])
def test_what_cannot_be_inverted_is_taken_as_seen_whole(weight: float) -> None:
    """Two training clients whose rows hardly differ: the difference, however small, is one client's upload."""
    A = torch.zeros(4, 4, dtype=torch.float64)
    A[0, 2] = A[1, 2] = 1.0
    A[1, 3] = weight
    A[0, 1] = 0.0
    A = A + A.T
    found = leverage(A, torch.tensor([0, 1]))
    assert float(found[3]) == pytest.approx(1.0, abs=1e-6)
    assert float(found[2]) == pytest.approx(1.0, abs=1e-6)


def test_an_edge_of_almost_no_weight_hides_nobody() -> None:
    """Ã of four clients in a row whose last edge has weight 1e-6."""
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = ClientGraph.from_edges(
        x=x,
        y=torch.tensor([0, 1, 0, 1]),
        client=torch.arange(4),
        split=torch.tensor([0, 0, 1, 2]),
        shared=torch.ones(4, dtype=torch.bool),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        edge_weight=torch.tensor([1.0, 1.0, 1e-6], dtype=torch.float64),
        num_classes=2,
    )
    A = propagation(graph, APPNP(0.1, 10).gamma, torch.float64).dense().fill_diagonal_(0)
    training = graph.training_clients
    found = leverage(A, training)
    with mpmath.workdps(60):
        truth = [max(float(precisely(A, training.tolist(), j, i)) for i in range(4) if i != j) for j in range(4)]
    assert all(float(found[j]) >= truth[j] - 1e-6 for j in range(4)), (found, truth)


@pytest.mark.parametrize("weight", [1e-15, 1e-20])
def test_rows_that_differ_by_less_than_arithmetic_tells_hide_nobody(weight: float) -> None:
    """Two training clients know the same fellows, but for the last, whom one of them knows by an edge of no weight."""
    A = everyone(6, 0)
    A[1], A[:, 1] = A[0].clone(), A[:, 0].clone()
    A[:2, :2] = 0
    A[0, 5] = A[5, 0] = 0
    A[1, 5] = A[5, 1] = weight
    found = leverage(A, torch.tensor([0, 1]))
    with mpmath.workdps(60):
        assert float(precisely(A, [0, 1], 5, 4)) == pytest.approx(1.0, abs=1e-9)
    assert float(found[5]) == 1


def precisely(A: Tensor, training: list[int], j: int, i: int) -> mpmath.mpf:
    """‖P e_j‖² with P the projection on the rows that client i sees, its own column deleted, in 60 digits."""
    kept = [column for column in range(len(A)) if column != i]
    basis: list[mpmath.matrix] = []
    for k in {*training, i}:
        v = mpmath.matrix([mpmath.mpf(float(A[k, column])) for column in kept])
        for b in basis:
            v -= b * sum(x * y for x, y in zip(b, v, strict=True))
        length = mpmath.norm(v)
        if length > mpmath.mpf(10) ** -40:
            basis.append(v / length)
    return sum(b[kept.index(j)] ** 2 for b in basis)


def test_a_fellow_sees_at_least_what_its_own_aggregate_shows() -> None:
    for seed in range(10):
        A = everyone(7, seed)
        shown = direct_ratio(A).square().max(0).values
        assert bool((leverage(A, torch.arange(2)) >= shown - 1e-9).all())


def test_as_many_aggregates_as_clients_hide_nothing() -> None:
    A = everyone(6, 1)
    assert torch.allclose(leverage(A, torch.arange(6)), torch.ones(6, dtype=torch.float64))


def test_who_is_not_connected_reveals_nothing() -> None:
    A = everyone(6, 0)
    A[:, 4] = A[4] = 0
    assert float(leverage(A, torch.arange(2))[4]) < 1e-12
    assert float(leverage(torch.zeros(5, 5), torch.arange(2)).max()) == 0


def test_a_part_that_hides_nothing_leaves_the_others() -> None:
    A = torch.zeros(8, 8, dtype=torch.float64)
    A[:6, :6], A[6, 7], A[7, 6] = everyone(6, 0), 1.0, 1.0
    found = leverage(A, torch.tensor([0, 6, 7]))
    assert found[6:].tolist() == [1.0, 1.0]
    assert torch.allclose(found[:6], leverage(A[:6, :6], torch.tensor([0])))


def test_leverage_never_exceeds_the_servers_view() -> None:
    for seed in range(20):
        A = everyone(9, seed)
        found = leverage(A, torch.arange(3))
        assert float(found.max()) <= 1
        assert float(found.min()) >= 0
