"""Undoing a secret rotation of feature space: records Z = X Qᵀ of many clients, and what is known of records like X.

The server reads Q x_j of every client with one sample (`RankOne`). What is left to it is to find Q.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def by_known_records(Z: Tensor, known_Z: Tensor, known_X: Tensor) -> Tensor:
    """X̂ = Z Q̂ with the rotation that carries the known records to their disguises (Procrustes) ``[N, d]``.

    Q̂ is right on the space that the known records span, and what lies outside is left out.

    >>> X = torch.eye(4)[:, :3] + torch.ones(4, 3)
    >>> Q = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    >>> torch.allclose(by_known_records(X @ Q.T, X[:3] @ Q.T, X[:3]), X, atol=1e-4)
    True
    """
    U, S, Vh = torch.linalg.svd(known_Z.T.double() @ known_X.double(), full_matrices=False)
    kept = 1e-9 * S.max() < S
    return (Z.double() @ U[:, kept] @ Vh[kept]).to(Z)


def by_moments(Z: Tensor, public_X: Tensor, rank: int) -> Tensor:
    """X̂ from known marginals: the principal axes of Z are taken for those of public records, signs by the third moment.

    >>> X = torch.rand(500, 2, generator=torch.Generator().manual_seed(0)).square() * torch.tensor([1.0, 3.0])
    >>> Q = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    >>> torch.allclose(by_moments(X @ Q.T, X, 2), X, atol=1e-3)
    True
    """
    ours, theirs = _axes(Z.double(), rank), _axes(public_X.double(), rank)
    scores = [(data.double() - data.double().mean(0)) @ axes for data, axes in ((Z, ours), (public_X, theirs))]
    sign = (scores[0].pow(3).mean(0) * scores[1].pow(3).mean(0)).sign()
    sign[sign == 0] = 1
    turned = scores[0] * sign
    return (turned @ theirs.T + public_X.double().mean(0)).to(Z)


def by_components(Z: Tensor, rank: int, generator: torch.Generator, iterations: int = 200) -> Tensor:
    """Independent components of Z ``[N, rank]`` (FastICA, symmetric, tanh): features up to order, sign and scale.

    >>> generator = torch.Generator().manual_seed(0)
    >>> X = (torch.rand(2000, 3, generator=generator) < 0.05).double()
    >>> Q = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    >>> found = by_components(X @ Q.T, 3, generator)
    >>> bool((torch.corrcoef(torch.cat([found, X], 1).T)[:3, 3:].abs().max(0).values > 0.98).all())
    True
    """
    centred = Z.double() - Z.double().mean(0)
    U, S, _ = torch.linalg.svd(centred, full_matrices=False)
    kept = min(rank, int((1e-9 * S.max() < S).sum()))
    white = U[:, :kept] * len(Z) ** 0.5
    W = torch.linalg.qr(torch.randn(kept, kept, generator=generator, dtype=torch.float64)).Q
    for _ in range(iterations):
        g = torch.tanh(white @ W.T)
        new = g.T @ white / len(Z) - (1 - g.square()).mean(0)[:, None] * W
        left, _, right = torch.linalg.svd(new)
        new = left @ right
        still = float((new * W).sum(1).abs().min()) > 1 - 1e-8
        W = new
        if still:
            break
    return (white @ W.T).to(Z)


def named_by_truth(components: Tensor, X: Tensor) -> Tensor:
    """Each feature as the component that it correlates with most, scaled to it: the names of components are granted.

    ``components [N, r], X [N, d] → [N, d]``; a feature whose best correlation is below 0.5 is left at its mean.
    """
    a, b = F.normalize(components - components.mean(0), dim=0), F.normalize(X - X.mean(0), dim=0)
    correlation = a.T @ b
    best = correlation.abs().max(0)
    signed = correlation.gather(0, best.indices[None])[0]
    spread = (X - X.mean(0)).norm(dim=0)
    guess = a[:, best.indices] * (signed * spread) + X.mean(0)
    return torch.where(best.values >= 0.5, guess, X.mean(0))


def _axes(data: Tensor, rank: int) -> Tensor:
    """Principal axes ``[d, rank]``."""
    return torch.linalg.svd(data - data.mean(0), full_matrices=False).Vh[:rank].T
