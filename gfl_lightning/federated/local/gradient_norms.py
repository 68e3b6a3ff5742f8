"""‖g_s‖ of every sample's gradient in a local step, from factors, without forming any g_s.

With J the W1-part of ∇C_k ``[c, m, d]``, G its noise in the W2-part ``[c, c, m]`` and u_s = Ã_kk a_s + A_k,
    W1-part of g_s:  δ_s x_sᵀ + Σ_o r_so J_o      squared:  ‖δ_s‖²‖x_s‖² + 2 Σ_o r_so δ_s·(J_o x_s) + r_sᵀ (J Jᵀ) r_s
    W2-part of g_s:  r_s u_sᵀ + Σ_o r_so G_o      squared:  ‖r_s‖²‖u_s‖² + 2 Σ_o r_so r_s·(G_o u_s) + r_sᵀ (G Gᵀ) r_s.

Where the parts of a gradient cancel, little is left of these sums but their rounding. A bound must not be exceeded for
it, so 2⁹ ε of the parts, ε being the precision's, is added to what is left: an upper bound, a few parts in 100,000 too
large in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Compensation:
    """What ∇C_k adds to the gradients of client k, for norms: a part ``[K, c, rows, columns]`` and its Gram matrix."""

    part: Tensor
    gram: Tensor

    @classmethod
    def of(cls, part: Tensor) -> Compensation:
        """With the Gram matrix over classes ``[K, c, c]``."""
        flat = part.flatten(2).double()
        return cls(part, (flat @ flat.mT).to(part))

    def added(self, r: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """‖left rightᵀ + Σ_o r_o part_o‖² − ‖left‖²‖right‖² for each sample ``[K, b]``, and ‖Σ_o r_o part_o‖².

        ``r [K, b, c]``, ``left [K, b, rows]``, ``right [K, b, columns]``.
        """
        K, c, rows, _ = self.part.shape
        on_right = (self.part.flatten(1, 2) @ right.mT).view(K, c, rows, -1)
        crossed = torch.einsum("kbo,kbi,koib->kb", r, left, on_right)
        own = ((r @ self.gram) * r).sum(-1)
        return 2 * crossed + own, own.clamp_min(0)


def gradient_norms(
    x: Tensor, delta: Tensor, r: Tensor, u: Tensor, first: Compensation | None, second: Compensation | None
) -> Tensor:
    """‖g_s‖ ``[K, b]`` from ``x [K, b, d]``, ``δ [K, b, m]``, residuals ``r [K, b, c]`` and ``u [K, b, m]``."""
    squared = parts = delta.square().sum(-1) * x.square().sum(-1) + r.square().sum(-1) * u.square().sum(-1)
    for compensation, left, right in ((first, delta, x), (second, r, u)):
        if compensation is not None:
            added, own = compensation.added(r, left, right)
            squared, parts = squared + added, parts + own
    return (squared.clamp_min(0) + 2**9 * torch.finfo(parts.dtype).eps * parts).sqrt()
