"""What noise on Jacobians adds to ∇C_k: G_k = Σ_{j≠k} Ã_kj E_j, as far as the local steps of client k read it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.models.encoders.encoder import Weights


class NoJacobianNoise:
    """G = 0: what local steps ask of noise where there is none."""

    def take(self, places: Tensor) -> NoJacobianNoise:
        """The noise of some of the clients."""
        return self

    def parts(self, names: list[str]) -> Weights:
        """The parts of some weights that are read, ``[K, L, c, …]`` by name; none where there is no noise."""
        return {}

    def reads(self, x: Tensor, rows: Tensor, second: str) -> list[tuple[Tensor, Tensor]]:
        """G_k x of own samples and the part of the second weight, for one hop, or nothing.

        ``x [S, d]``, ``rows [K, n] → [K, c, n, m]`` and ``[K, c, c, m]``.
        """
        return []

    def mixed_into(self, moved: Tensor, weight: Tensor) -> Tensor:
        """``moved [m, d]`` plus Σ_k,l,o weight_klo G_klo of the feature weight's part that is read, in place."""
        return moved


@dataclass(frozen=True, eq=False)
class JacobianNoise(NoJacobianNoise):
    """G of K clients and L hops.

    Args:
        name: the feature weight.
        first: its part in coordinates of the bases ``[K, L, c, m, n]``.
        rest: the parts of the other weights by name ``[K, L, c, …]``.
        basis: V_k ``[K, d, n]``; ``None`` means that ``first`` is the part itself, n = d.
    """

    name: str
    first: Tensor
    rest: Weights
    basis: Tensor | None

    def take(self, places: Tensor) -> JacobianNoise:
        """The noise of some of the clients."""
        basis = None if self.basis is None else self.basis[places]
        rest = {name: part[places] for name, part in self.rest.items()}
        return JacobianNoise(self.name, self.first[places], rest, basis)

    def parts(self, names: list[str]) -> Weights:
        """The parts of some weights that are read, ``[K, L, c, …]`` by name."""
        return {name: self._whole if name == self.name else self.rest[name] for name in names}

    def reads(self, x: Tensor, rows: Tensor, second: str) -> list[tuple[Tensor, Tensor]]:
        """G_k x of own samples and the part of the second weight, for one hop."""
        K, _, c, m, r = self.first.shape
        coordinates = x[rows] if self.basis is None else x[rows] @ self.basis
        return [((self.first.view(K, c * m, r) @ coordinates.mT).view(K, c, m, -1).mT, self.rest[second][:, 0])]

    def mixed_into(self, moved: Tensor, weight: Tensor) -> Tensor:
        """``moved [m, d]`` plus Σ_k,l,o weight_klo G_klo of the feature weight's part that is read, in place."""
        if self.basis is None:
            return moved.add_((weight.flatten() @ self.first.flatten(0, 2).flatten(1)).view(self.first.shape[3:]))
        coefficients = (weight.flatten(1)[:, None] @ self.first.flatten(1, 2).flatten(2)).view(
            -1, *self.first.shape[3:]
        )
        return moved.add_(coefficients.transpose(0, 1).flatten(1) @ self.basis.mT.flatten(0, 1))

    @property
    def _whole(self) -> Tensor:
        return self.first if self.basis is None else self.first @ self.basis.mT[:, None, None]
