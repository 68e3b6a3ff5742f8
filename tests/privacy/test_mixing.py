"""What aggregates tell a fellow client, against the Gaussian mechanism written out."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.privacy.mixing import direct_ratio, leverage


def everyone(N: int, seed: int) -> Tensor:
    A = torch.rand(N, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (A + A.T).fill_diagonal_(0)


def revealed(R: Tensor, own: Tensor, j: int, i: int) -> float:
    """max over linear views a of (aᵀ R_j)² / Var(aᵀ R e), R being the training rows and i's own, with e_i known."""
    R = torch.cat([R, own[None]])
    others = torch.cat([R[:, :i], R[:, i + 1 :]], 1)
    return float(R[:, j] @ torch.linalg.pinv(others @ others.T, rtol=1e-10) @ R[:, j])


def test_leverage_is_the_worst_over_fellow_clients_of_their_joint_view() -> None:
    for seed, (K, N) in enumerate([(3, 8), (5, 8), (1, 5)]):
        A = everyone(N, seed)
        R = A[:K]
        expected = [max(revealed(R, A[i], j, i) for i in range(N) if i != j) for j in range(N)]
        assert torch.allclose(leverage(R, A), torch.tensor(expected, dtype=torch.float64), atol=1e-7)


def test_a_fellow_sees_at_least_what_its_own_aggregate_shows() -> None:
    for seed in range(10):
        A = everyone(7, seed)
        shown = direct_ratio(A).square().max(0).values
        assert bool((leverage(A[:2], A) >= shown - 1e-9).all())


def test_as_many_aggregates_as_clients_hide_nothing() -> None:
    A = everyone(6, 1)
    assert torch.allclose(leverage(A, A), torch.ones(6, dtype=torch.float64))


def test_who_is_not_connected_reveals_nothing() -> None:
    A = everyone(6, 0)
    A[:, 4] = A[4] = 0
    assert float(leverage(A[:2], A)[4]) < 1e-12
    assert float(leverage(torch.zeros(2, 5), torch.zeros(5, 5)).max()) == 0


def test_leverage_never_exceeds_the_servers_view() -> None:
    for seed in range(20):
        A = everyone(9, seed)
        found = leverage(A[:3], A)
        assert float(found.max()) <= 1
        assert float(found.min()) >= 0
