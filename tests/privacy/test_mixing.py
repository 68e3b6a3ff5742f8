"""What aggregates tell a fellow client, against the Gaussian mechanism written out."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.privacy.mixing import direct_ratio, leverage


def rows(K: int, N: int, seed: int) -> Tensor:
    R = torch.rand(K, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    R[torch.arange(K), torch.arange(K)] = 0
    return R


def revealed(R: Tensor, j: int, i: int) -> float:
    """max over linear views a of (aᵀ R_j)² / Var(aᵀ R e) with e_i known: R_jᵀ (Σ_{l≠i} R_l R_lᵀ)⁺ R_j."""
    others = torch.cat([R[:, :i], R[:, i + 1 :]], 1)
    return float(R[:, j] @ torch.linalg.pinv(others @ others.T, rtol=1e-10) @ R[:, j])


def test_leverage_is_the_worst_over_fellow_clients_of_the_joint_view() -> None:
    for seed, (K, N) in enumerate([(3, 8), (6, 7), (1, 5)]):
        R = rows(K, N, seed)
        expected = [max(revealed(R, j, i) for i in range(N) if i != j) for j in range(N)]
        assert torch.allclose(leverage(R), torch.tensor(expected, dtype=torch.float64), atol=1e-8)


def test_one_row_reveals_its_own_ratio_at_least() -> None:
    """With one training client only C_k is seen: the ratio of |R_kj|² to ‖R_k‖² less the fellow's own entry."""
    R = rows(1, 6, 3)
    entries = R[0].square()
    expected = [float(entries[j] / (entries.sum() - max(e for i, e in enumerate(entries) if i != j))) for j in range(6)]
    assert torch.allclose(leverage(R), torch.tensor(expected, dtype=torch.float64))
    assert bool((direct_ratio(R)[0].square() <= leverage(R) + 1e-12).all())


def test_as_many_aggregates_as_clients_hide_nothing() -> None:
    R = rows(6, 6, 1)
    assert torch.allclose(leverage(R), torch.ones(6, dtype=torch.float64))


def test_who_is_not_connected_reveals_nothing() -> None:
    R = rows(2, 6, 0)
    R[:, 4] = 0
    assert float(leverage(R)[4]) < 1e-12
    assert float(leverage(torch.zeros(2, 5)).max()) == 0


def test_leverage_never_exceeds_the_servers_view() -> None:
    for seed in range(20):
        found = leverage(rows(3, 9, seed))
        assert float(found.max()) <= 1
        assert float(found.min()) >= 0
