"""M ≈ S X with S ≥ 0: mixtures of records by patterns that are never negative."""

from __future__ import annotations

import torch
from torch import Tensor

STARTS = 4


def factorise(M: Tensor, rank: int, nonnegative: bool, generator: torch.Generator, iterations: int = 150) -> Tensor:
    """X ``[rank, d]`` of M ``[rows, d]``, by multiplicative updates (Lee and Seung; Ding, Li and Jordan for signed X).

    A signed factorisation has more local optima: it is the best of several starts.

    >>> X = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    >>> S = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    >>> found = factorise(S @ X, 2, True, torch.Generator().manual_seed(0))
    >>> sorted((found / found.max(1, keepdim=True).values).round().tolist())
    [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
    """
    if nonnegative:
        return _nonnegative(M.clamp_min(0), rank, generator, iterations)
    tries = [_signed(M, rank, generator, iterations) for _ in range(STARTS)]
    return min(tries, key=lambda pair: float((M - pair[0] @ pair[1]).square().sum()))[1]


def _nonnegative(M: Tensor, rank: int, generator: torch.Generator, iterations: int) -> Tensor:
    tiny = _tiny(M)
    S, X = (
        torch.rand(shape, generator=generator, dtype=M.dtype) + 0.1 for shape in ((len(M), rank), (rank, M.shape[1]))
    )
    X = X * (M.mean() / (S @ X).mean().clamp_min(tiny))
    for _ in range(iterations):
        X = X * (S.T @ M) / (S.T @ S @ X + tiny)
        S = S * (M @ X.T) / (S @ (X @ X.T) + tiny)
    return X


def _signed(M: Tensor, rank: int, generator: torch.Generator, iterations: int) -> tuple[Tensor, Tensor]:
    tiny = _tiny(M)
    S = torch.rand(len(M), rank, generator=generator, dtype=M.dtype) + 0.1
    eye = torch.eye(rank, dtype=M.dtype)
    X = M[:rank]
    for _ in range(iterations):
        gram = S.T @ S
        X = torch.linalg.solve(gram + 1e-6 * gram.diagonal().mean() * eye, S.T @ M)
        B, C = M @ X.T, X @ X.T
        S = S * ((B.clamp_min(0) + S @ (-C).clamp_min(0)) / ((-B).clamp_min(0) + S @ C.clamp_min(0) + tiny)).sqrt()
    return S, X


def _tiny(M: Tensor) -> float:
    return 1e-12 * float(M.abs().max()) + torch.finfo(M.dtype).tiny
