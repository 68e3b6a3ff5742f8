"""How much of one client's upload the aggregates C_k tell a fellow client, from the entries of Ã.

C_k = Σ_{j≠k} R_kj (ĥ_j + e_j): client j moves it by R_kj Δ, and everybody's noise blurs it by σ ‖R_k‖.
"""

from __future__ import annotations

import torch
from torch import Tensor


def direct_ratio(R: Tensor) -> Tensor:
    """|R_kj| / ‖R_k‖ ``[K, N]``: signal over noise of client j in C_k, as a share of that in its own upload."""
    R = R.double()
    return R.abs() / torch.linalg.vector_norm(R, dim=1, keepdim=True).clamp_min(torch.finfo(R.dtype).tiny)


def leverage(R: Tensor) -> Tensor:
    """Share of (Δ/σ)² of client j's upload that all rows of R together reveal to one other client ``[N]``.

    W̄ carries traces of every training client's C_k, so a fellow client is granted all of them: R(H + E) has the
    signal R_j Δ and the covariance σ² R Rᵀ, hence the ratio H_jj = R_jᵀ (R Rᵀ)⁺ R_j ≤ 1. The fellow i knows its own
    noise, which amounts to deleting column i: H_jj + H_ij² / (1 − H_ii); the largest over i counts.
    """
    R = R.double()
    _, singular, V = torch.linalg.svd(R, full_matrices=False)
    kept = V[singular > singular.max() * max(R.shape) * torch.finfo(R.dtype).eps]
    H = kept.T @ kept
    own = H.diagonal().clone()
    known = H.square() / (1 - own).clamp_min(1e-9)[:, None]
    known.fill_diagonal_(0)
    return (own + known.max(0).values).clamp_max(1)
