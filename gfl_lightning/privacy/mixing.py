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


def leverage(R: Tensor, everyone: Tensor) -> Tensor:
    """Share of (Δ/σ)² of client j's upload that reaches one other client, the worst over those ``[N]``.

    W̄ carries traces of every training client's C_k, so a fellow i is granted all of them, the rows R ``[K, N]``, beside
    its own C_i, row i of ``everyone [N, N]``. Such rows times H + E have the signal R_j Δ and the covariance σ² R Rᵀ,
    hence the ratio H_jj with H = Rᵀ (R Rᵀ)⁺ R; row i adds u uᵀ to H, u being its direction beside the others. The
    fellow knows its own noise, which amounts to deleting column i: H_jj + H_ij² / (1 − H_ii).
    """
    R, everyone = R.double(), everyone.double()
    _, singular, V = torch.linalg.svd(R, full_matrices=False)
    kept = V[singular > singular.max() * max(R.shape) * torch.finfo(R.dtype).eps]
    H = kept.T @ kept
    beside = everyone - (everyone @ kept.T) @ kept
    length = torch.linalg.vector_norm(beside, dim=1, keepdim=True)
    new = length > 1e-9 * torch.linalg.vector_norm(everyone, dim=1, keepdim=True)
    u = torch.where(new, beside / length.clamp_min(torch.finfo(R.dtype).tiny), 0)
    seen = H + u.diagonal()[:, None] * u
    revealed = H.diagonal() + u.square() + seen.square() / (1 - seen.diagonal()).clamp_min(1e-9)[:, None]
    return revealed.fill_diagonal_(0).max(0).values.clamp_max(1)
