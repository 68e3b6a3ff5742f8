"""The convex problem of each client's personal terms, by Newton's method, for many clients at once.

With θ = (g, B), P = 1 + c q numbers, the entries of B row by row:
    minimise f(θ) = Σ_s w_s ℓ(y_s, o_s + g d_s + B φ_s) + ½ Σ_p λ_p θ_p².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

STEPS, HALVINGS = 60, 30
ROUNDING = 1e-14  # of f, in double precision


class Convex(Protocol):
    """What Newton's method needs of a loss."""

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """ℓ ``[n]`` of ``z [n, c]`` and ``y [n]``."""

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """∂ℓ/∂z ``[…, c]``."""

    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """∂²ℓ/∂z² ``[…, c, c]``."""


class Logistic:
    """ℓ = log(1 + e^m) − y m: cross-entropy of two classes, by the margin m = z_1 − z_0, at a fraction of the work."""

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """ℓ ``[n]`` of margins ``[n, 1]``."""
        return F.softplus(z[:, 0]) - y * z[:, 0]

    def residual(self, z: Tensor, target: Tensor) -> Tensor:
        """ŷ − y."""
        return torch.sigmoid(z) - target

    def curvature(self, z: Tensor, target: Tensor) -> Tensor:
        """ŷ (1 − ŷ)."""
        p = torch.sigmoid(z)
        return (p * (1 - p))[..., None]


@dataclass(frozen=True, eq=False)
class Fitting:
    """The problems of K clients with up to n samples each, in double precision.

    Args:
        loss: ℓ.
        offset: o, what is predicted without any personal term ``[K, n, c]``.
        by_gate: d ``[K, n, c]``.
        phi: φ ``[K, n, q]``.
        y: labels ``[K, n]``.
        target: what the loss keeps of them ``[K, n, c]``.
        weight: w, 0 where there is no sample ``[K, n]``.
        strength: λ ``[P]``.
    """

    loss: Convex
    offset: Tensor
    by_gate: Tensor
    phi: Tensor
    y: Tensor
    target: Tensor
    weight: Tensor
    strength: Tensor

    @torch.no_grad()
    def minimiser(self, start: Tensor, free: Tensor) -> Tensor:
        """θ ``[K, P]`` from a start; those that are not ``free [K, P]`` stay where they are.

        Steps are halved until f falls, so that it does wherever ℓ is convex; all clients stop together, once no step
        could lower any f by more than rounding.
        """
        theta, value = start, self.value(start)
        for _ in range(STEPS):
            step, promised = self._newton(theta, free)
            if bool((promised <= ROUNDING * (1 + value.abs())).all()):
                break
            theta, value = self._lowered(theta, value, step)
        return theta

    def value(self, theta: Tensor) -> Tensor:
        """f ``[K]``."""
        z = self._outputs(theta)
        loss = self.loss.losses(z.flatten(0, 1), self.y.flatten()).view_as(self.weight)
        return (self.weight * torch.where(self.weight > 0, loss, 0)).sum(1) + 0.5 * theta.square() @ self.strength

    def _outputs(self, theta: Tensor) -> Tensor:
        B = theta[:, 1:].view(len(theta), self.offset.shape[2], self.phi.shape[2])
        return self.offset + theta[:, :1, None] * self.by_gate + self.phi @ B.mT

    def _newton(self, theta: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        """Newton's step ``[K, P]`` and by how much it would lower f, were f quadratic ``[K]``."""
        z, d, w = self._outputs(theta), self.by_gate, self.weight[..., None]
        r, H = w * self.loss.residual(z, self.target), w[..., None] * self.loss.curvature(z, self.target)
        slope = torch.cat([(d * r).sum((1, 2))[:, None], (r.mT @ self.phi).flatten(1)], 1) + theta * self.strength
        hessian = self._bent(H) + torch.diag_embed(self.strength)
        slope = torch.where(free, slope, 0)
        both = free[:, :, None] & free[:, None, :]
        hessian = torch.where(both, hessian, torch.eye(theta.shape[1], dtype=d.dtype, device=d.device))
        step = torch.linalg.solve(hessian, slope[..., None])[..., 0]
        return step, 0.5 * (slope * step).sum(1)

    def _bent(self, H: Tensor) -> Tensor:
        """Second derivatives of Σ_s w_s ℓ_s by θ ``[K, P, P]`` from those by z ``[K, n, c, c]``."""
        K, n, c, _ = H.shape
        q = self.phi.shape[2]
        Hd = (H * self.by_gate[:, :, None]).sum(3)
        across = (Hd.mT @ self.phi).flatten(1)
        each = (H[..., None] * self.phi[:, :, None, None]).view(K, n, c * c * q).mT @ self.phi
        both = each.view(K, c, c, q, q).transpose(2, 3).reshape(K, c * q, c * q)
        first = torch.cat([(Hd * self.by_gate).sum((1, 2))[:, None], across], 1)
        return torch.cat([first[:, None], torch.cat([across[..., None], both], 2)], 1)

    def _lowered(self, theta: Tensor, value: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """The best of a step, half of it, …; no step for a client whose f none of them lowers."""
        size = torch.ones_like(value)
        for _ in range(HALVINGS):
            after = theta - size[:, None] * step
            found = self.value(after)
            worse = ~(found <= value + ROUNDING * (1 + value.abs()))
            if not bool(worse.any()):
                return after, found
            size = torch.where(worse, size / 2, size)
        size = torch.where(worse, 0, size)
        after = theta - size[:, None] * step
        return after, torch.where(worse, value, found)
