"""Noise on Jacobians, drawn where it is read: after aggregation, with the exact joint covariance.

Every entry of every ∇ĥ_j gets E_j ~ N(0, σ²). Training client k meets only G_k = Σ_{j≠k} R_kj E_j, whose entries have
the covariance σ² R Rᵀ over clients and are independent otherwise. With the triangular factor Rᵀ = Q T, G = σ Tᵀ ξ for
standard normal ξ: as many draws as training clients, not as all clients.

Client k reads the W1-part, rows of length d, only through inner products with its own samples, which lie in a space
with orthonormal basis V ``[d, r]``. So G_k V is drawn, and what is orthogonal to V enters the average of the clients'
models alone: with coefficients b ``[K, c]`` it is N(0, ‖σ T b‖² (I − V Vᵀ)) in every row, one draw of ``[m, d]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class JacobianNoise:
    """G of K clients and L hops.

    Args:
        first: the W1-part in coordinates of the basis ``[K, L, c, m, r]``.
        rest: the parts of the other weights by name ``[K, L, c, …]``.
        basis: V ``[d, r]``; ``None`` means that ``first`` is the W1-part itself.
    """

    first: Tensor
    rest: Weights
    basis: Tensor | None

    def take(self, places: Tensor) -> JacobianNoise:
        """The noise of some of the clients."""
        return JacobianNoise(self.first[places], {n: part[places] for n, part in self.rest.items()}, self.basis)

    def on(self, x: Tensor) -> Tensor:
        """G_k x of own samples ``[K, n, d] → [K, c, n, m]``, for one hop."""
        K, _, c, m, r = self.first.shape
        coordinates = x if self.basis is None else x @ self.basis
        return (self.first.view(K, c * m, r) @ coordinates.mT).view(K, c, m, -1).mT

    def whole(self, name: str) -> Tensor:
        """The part of a weight inside the basis, ``[K, L, c, …]``."""
        if name != "W1":
            return self.rest[name]
        return self.first if self.basis is None else self.first @ self.basis.T

    def mixed(self, weight: Tensor) -> Tensor:
        """Σ_k,l,o weight_klo G_klo of the W1-part inside the basis, ``[K, L, c] → [m, d]``."""
        inside = (weight.flatten() @ self.first.flatten(0, 2).flatten(1)).view(self.first.shape[3:])
        return inside if self.basis is None else inside @ self.basis.T


@dataclass(frozen=True, eq=False)
class JacobianNoiseSource:
    """Draws the noise of a round for all training clients, everyone having just uploaded.

    Args:
        std: σ.
        factor: Tᵀ ``[K L, q]`` with Tᵀ T = R Rᵀ.
        hops: L.
        shapes: shape of each weight.
        num_classes: c.
        basis: V, or ``None`` for all of the space.
    """

    std: float
    factor: Tensor
    hops: int
    shapes: dict[str, tuple[int, ...]]
    num_classes: int
    basis: Tensor | None

    @classmethod
    def of(
        cls, std: float, R: Tensor, shapes: dict[str, tuple[int, ...]], num_classes: int, x: Tensor | None
    ) -> JacobianNoiseSource:
        """From the rows R ``[K, L, N]`` and the samples ``x [rows, d]`` that noise meets; ``None`` keeps all of it."""
        factor = torch.linalg.qr(R.flatten(0, 1).double().T, mode="r").R.T.to(R.dtype)
        return cls(std, factor, R.shape[1], shapes, num_classes, None if x is None else basis_of(x))

    def draw(self, generator: torch.Generator) -> JacobianNoise:
        """G of all training clients."""
        m, d = self.shapes["W1"]
        first = self._mixed((m, d if self.basis is None else self.basis.shape[1]), generator)
        rest = {name: self._mixed(shape, generator) for name, shape in self.shapes.items() if name != "W1"}
        return JacobianNoise(first, rest, self.basis)

    def _mixed(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        draws = torch.randn(
            self.factor.shape[1], self.num_classes * math.prod(shape), generator=generator, dtype=self.factor.dtype
        )
        mixed = self.factor @ draws.mul_(self.std).to(self.factor.device)
        return mixed.view(-1, self.hops, self.num_classes, *shape)

    def remainder(self, weight: Tensor, places: Tensor | None, generator: torch.Generator) -> Tensor:
        """Σ_k,l,o weight_klo G_klo of the W1-part outside the basis, ``[K, L, c] → [m, d]``."""
        factor = self.factor.view(-1, self.hops, self.factor.shape[1])
        factor = (factor if places is None else factor[places]).flatten(0, 1)
        scale = self.std * torch.linalg.matrix_norm(factor.T @ weight.flatten(0, 1))
        return scale * self._outside(self._normal(1, generator))[0]

    def remainders(self, weight: Tensor, places: Tensor | None, generator: torch.Generator) -> Tensor:
        """Σ_l,o weight_klo G_klo outside the basis for each client k, with their joint covariance ``[K, m, d]``."""
        factor = self.factor.view(-1, self.hops, self.factor.shape[1])
        factor = factor if places is None else factor[places]
        root = torch.einsum("klo,klq->koq", weight, factor).flatten(1)
        lower = torch.linalg.qr(root.T, mode="r").R.T
        draws = self._outside(self._normal(lower.shape[1], generator))
        return self.std * torch.tensordot(lower, draws, 1)

    def _normal(self, count: int, generator: torch.Generator) -> Tensor:
        draws = torch.randn(count, *self.shapes["W1"], generator=generator, dtype=self.factor.dtype)
        return draws.to(self.factor.device)

    def _outside(self, rows: Tensor) -> Tensor:
        """Rows ``[…, d]`` less their part inside the basis."""
        return torch.zeros_like(rows) if self.basis is None else rows - (rows @ self.basis) @ self.basis.T


def basis_of(x: Tensor) -> Tensor | None:
    """An orthonormal basis ``[d, r]`` of a space that holds all rows of x; ``None`` where that is everything."""
    rows, d = x.shape
    return None if rows >= d else torch.linalg.qr(x.double().T).Q.to(x.dtype)


def entrywise(
    R: Tensor,
    shapes: dict[str, tuple[int, ...]],
    num_classes: int,
    std: float,
    draws_of: Callable[[int], torch.Generator],
    clients: list[int],
) -> JacobianNoise:
    """G from E_j of one client after another, as an upload that stands for several rounds needs: its noise stays.

    ``draws_of(j)`` is a fresh generator of client j's noise in the round of its last upload.
    """
    K, L, _ = R.shape
    total = {n: R.new_zeros(K, L, num_classes, *shape) for n, shape in shapes.items()}
    for j in clients:
        generator = draws_of(j)
        for name, shape in shapes.items():
            E = torch.randn(num_classes, *shape, generator=generator, dtype=R.dtype).to(R.device)
            total[name] += std * R[:, :, j].view(K, L, *[1] * E.ndim) * E
    return JacobianNoise(total.pop("W1"), total, None)
