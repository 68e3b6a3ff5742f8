"""The convex problem of each client's personal terms, by Newton's method, for all clients at once.

With D_s the derivatives of z_s by the terms θ ``[P, c]``:
    minimise f(θ) = Σ_s w_s ℓ(y_s, o_s + θᵀ D_s) + ½ Σ_p λ_p θ_p².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.graphs.losses.loss import Loss

STEPS, HALVINGS = 60, 30
ROUNDING = 1e-14  # of f, in double precision


@dataclass(frozen=True, eq=False)
class Fitting:
    """The problems of K clients with up to n samples each, in double precision.

    Args:
        loss: ℓ.
        offset: o, what is predicted without any personal term ``[K, n, c]``.
        design: D ``[K, n, P, c]``.
        y: labels ``[K, n]``.
        target: what the loss keeps of them ``[K, n, c]``.
        weight: w, 0 where there is no sample ``[K, n]``.
        strength: λ ``[P]``.
    """

    loss: Loss
    offset: Tensor
    design: Tensor
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
        return self.offset + torch.einsum("kp,knpc->knc", theta, self.design)

    def _newton(self, theta: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        """Newton's step ``[K, P]`` and by how much it would lower f, were f quadratic ``[K]``."""
        z, D, w = self._outputs(theta), self.design, self.weight[..., None]
        slope = torch.einsum("knpc,knc->kp", D, w * self.loss.residual(z, self.target)) + theta * self.strength
        bent = torch.einsum("knpc,kncd->knpd", D, w[..., None] * self.loss.curvature(z, self.target))
        hessian = torch.einsum("knpd,knqd->kpq", bent, D) + torch.diag_embed(self.strength)
        slope = torch.where(free, slope, 0)
        both = free[:, :, None] & free[:, None, :]
        hessian = torch.where(both, hessian, torch.eye(D.shape[2], dtype=D.dtype, device=D.device))
        step = torch.linalg.solve(hessian, slope[..., None])[..., 0]
        return step, 0.5 * (slope * step).sum(1)

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
