"""Records from numbers that are linear in what clients compute: a ridge decoder learned on public records.

φ(x) are the numbers that a record x would upload, such as h(x) over many rounds. Public records tell how x follows from
φ(x) on average, x ≈ x̄ + D (φ(x) − φ̄). An upload of a client with several samples, or a server's aggregate, is a
weighted mean of φ, and D is linear: it decodes to the same weighted mean of records.
"""

from __future__ import annotations

import torch
from torch import Tensor

STRENGTHS = torch.logspace(-4, 4, 17)


def decode(phi: Tensor, x: Tensor, observed: Tensor, noise: Tensor | None = None) -> Tensor:
    """x̄ + (observed − φ̄)ᵀ D, from public ``phi [P, f]`` and ``x [P, d]`` and an ``observed [f]``.

    The strength of the ridge is the one with the least error in leaving one public record out; ``noise [f]`` is the
    standard deviation of noise in each number of ``observed``, which those of public records get too.

    >>> x = torch.eye(3)
    >>> decode(x @ torch.tensor([[2.0, 0, 0], [0, 3, 0], [0, 0, 5]]), x, torch.tensor([0.0, 3.0, 0.0])).argmax()
    tensor(1)
    """
    if noise is not None and bool(noise.any()):
        phi = phi + noise * torch.randn(phi.shape, generator=torch.Generator().manual_seed(0), dtype=phi.dtype)
    mean_phi, mean_x = phi.mean(0), x.mean(0)
    spread = phi.std(0, correction=0).clamp_min(1e-6 * phi.abs().max()).clamp_min(torch.finfo(phi.dtype).tiny)
    centred, target = (phi - mean_phi) / spread, (observed - mean_phi) / spread
    gram, aim = centred @ centred.T, x - mean_x
    scale = gram.diagonal().mean().clamp_min(torch.finfo(phi.dtype).tiny)
    values, vectors = torch.linalg.eigh(gram)
    turned = vectors.T @ aim
    least, best = torch.inf, torch.zeros_like(aim)
    for strength in STRENGTHS.to(gram):
        shrunk = 1 / (values.clamp_min(0) + strength * scale)
        dual = vectors @ (shrunk[:, None] * turned)
        diagonal = vectors.square() @ shrunk - 1 / (len(x) * strength * scale)  # means are left one out of, too
        diagonal = diagonal.clamp_min(torch.finfo(phi.dtype).tiny)
        error = float((dual / diagonal[:, None]).square().sum())
        if error < least:
            least, best = error, dual
    return mean_x + (target @ centred.T) @ best
