"""How much of one client's upload the aggregates C_k tell fellow clients, from the entries of Ã.

C_k = Σ_{j≠k} R_kj (ĥ_j + e_j): client j moves it by R_kj Δ, and everybody's noise blurs it by σ ‖R_k‖.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, islice

import torch
from torch import Tensor

TRUSTED = 1e-6
"""How small a singular value or a remainder may be, beside the largest, for its direction to be known."""
MOST_COALITIONS = 50_000
CHUNK_ENTRIES = 2**22


def direct_ratio(R: Tensor) -> Tensor:
    """|R_kj| / ‖R_k‖ ``[K, N]``: signal over noise of client j in C_k, as a share of that in its own upload."""
    R = R.double()
    return R.abs() / torch.linalg.vector_norm(R, dim=1, keepdim=True).clamp_min(torch.finfo(R.dtype).tiny)


def leverage(everyone: Tensor, training: Tensor, colluding: int = 1) -> Tensor:
    """Share of (Δ/σ)² of client j's upload that reaches m colluding fellows, the worst over those ``[N]``.

    W̄ carries traces of every training client's C_k, so fellows S are granted all of them, the rows R of the
    ``training [K]`` clients, beside their own C_i, rows i ∈ S of ``everyone [N, N]``. Such rows times H + E have the
    signal R_j Δ and the covariance σ² R Rᵀ, hence the ratio H_jj with H the projection on the space of the rows. They
    know their own noise, which deletes the columns S: H_jj + H_jS (I − H_SS)⁻¹ H_Sj.

    A part of the graph that is not connected to the rest is taken by itself. It is 1 throughout a part where an inverse
    cannot be trusted, or where there are too many coalitions to try.
    """
    everyone = everyone.double()
    shown = torch.zeros(len(everyone), dtype=torch.float64, device=everyone.device)
    trains = torch.zeros_like(shown, dtype=torch.bool).index_fill_(0, training.to(shown.device), True)
    for part in _parts(everyone):
        within = everyone[part][:, part]
        shown[part] = _of_a_part(within, within[trains[part]], min(colluding, len(part) - 1))
    return shown


def _of_a_part(everyone: Tensor, R: Tensor, colluding: int) -> Tensor:
    """The same for clients that are connected, of whom fewer than all collude."""
    N = len(everyone)
    one = torch.ones(N, dtype=everyone.dtype, device=everyone.device)
    if N == 1:
        return torch.zeros_like(one)
    if math.comb(N, colluding) > MOST_COALITIONS:
        return one
    R = R[R.abs().sum(1) > 0]
    kept = everyone.new_zeros(0, N)
    if len(R):
        _, singular, kept = torch.linalg.svd(R, full_matrices=False)
        if len(R) > N or bool(singular.min() < TRUSTED * singular.max()):
            return one
    H, worst = kept.T @ kept, torch.zeros_like(one)
    beside = everyone - (everyone @ kept.T) @ kept
    size = max(1, CHUNK_ENTRIES // (N * colluding))
    coalitions = combinations(range(N), colluding)
    while chunk := list(islice(coalitions, size)):
        S = torch.tensor(chunk, device=everyone.device)
        shown = _shown_to(S, H, beside[S], everyone[S])
        if shown is None:
            return one
        worst = torch.maximum(worst, shown.max(0).values)
    return worst.clamp(0, 1)


def _shown_to(S: Tensor, H: Tensor, beside: Tensor, rows: Tensor) -> Tensor | None:
    """What coalitions ``S [b, m]`` see of each client ``[b, N]``, or ``None`` where it cannot be computed.

    ``beside [b, m, N]`` are the parts of their own ``rows`` outside of the space that H projects on.
    """
    length = torch.linalg.vector_norm(beside, dim=2)
    share = length / torch.linalg.vector_norm(rows, dim=2).clamp_min(torch.finfo(H.dtype).tiny)
    if bool(((share > 1e-12) & (share < TRUSTED)).any()):
        return None
    beside = torch.where((share >= TRUSTED)[..., None], beside / length.clamp_min(1e-300)[..., None], 0)
    values, vectors = torch.linalg.eigh(beside @ beside.mT)
    new = values > TRUSTED
    if bool(((values > 1e-12) & ~new).any()):
        return None
    Q = torch.where(new[..., None], vectors.mT @ beside / values.clamp_min(TRUSTED).sqrt()[..., None], 0)
    to_S = H[S] + torch.gather(Q, 2, S[:, None].expand(-1, Q.shape[1], -1)).mT @ Q
    among = torch.gather(to_S, 2, S[:, None].expand(-1, S.shape[1], -1))
    left = torch.eye(S.shape[1], dtype=H.dtype, device=H.device) - among
    if bool((torch.linalg.eigvalsh(left) < TRUSTED).any()):
        return None
    known = (to_S * torch.linalg.solve(left, to_S)).sum(1)
    shown = H.diagonal() + Q.square().sum(1) + known
    return shown.scatter(1, S, 0.0)


def _parts(A: Tensor) -> Iterator[Tensor]:
    """The clients of each connected part of a graph of weights ``[N, N]``."""
    linked = (A != 0) | (A != 0).T
    left = torch.ones(len(A), dtype=torch.bool, device=A.device)
    while bool(left.any()):
        part = torch.zeros_like(left)
        part[left.nonzero()[0]] = True
        grown = part | linked[part].any(0)
        while not torch.equal(grown, part):
            part, grown = grown, grown | linked[grown].any(0)
        left &= ~part
        yield part.nonzero().flatten()
