"""Gaussian noise on Jacobians, drawn where it is read: after aggregation, with the exact joint covariance.

Every entry of every ∇ĥ_j gets E_j ~ N(0, σ²). Training client k meets only G_k = Σ_{j≠k} R_kj E_j, whose entries have
the covariance Σ = σ² R Rᵀ over clients and are independent otherwise.

Client k reads the feature weight's part of G_k, rows of length d, only through inner products with its own samples:
through G_k V_k with V_k ``[d, n]`` an orthonormal basis of their space. Where all clients together read fewer than d
numbers a row, only these are drawn before the local steps, jointly normal with the covariance M = Σ ∘ (V_kᵀ V_k'). The
rest of G enters the average of the clients' models alone, as Σ_k b_k G_k with coefficients b that the steps have
decided: it is drawn afterwards, given what was read, d numbers for each of the m rows. That is m (c K n + d) draws for
m c K d.

This simulates what many clients do on their own, each rounding its own upload and its own noise to a lattice
(`protected_messages`). What is drawn here has the law of the sum of their noise, up to the lattice, and is in the
engine's precision: nobody is sent it, and what leaves the simulation, W̄, is on a lattice of its own (`shield`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.federated.protection.jacobian_noise import JacobianNoise
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.privacy.noise_source import NoiseSource


@dataclass(frozen=True, eq=False)
class AggregatedNoise:
    """Draws the noise of a round for all training clients, everyone having just uploaded.

    Args:
        std: σ.
        factor: T ``[K L, q]`` with σ² T Tᵀ = Σ.
        hops: L.
        encoder: Ψ_h.
        reads: what is read of the feature weight's part; ``None`` where that is everything.
    """

    std: float
    factor: Tensor
    hops: int
    encoder: SizedEncoder
    reads: Reads | None

    @classmethod
    def of(cls, std: float, R: Tensor, encoder: SizedEncoder, x: Tensor | None) -> AggregatedNoise:
        """From the rows R ``[K, L, N]`` and the clients' samples ``x [K, n, d]``; ``None`` means to draw all of G."""
        factor = torch.linalg.qr(R.flatten(0, 1).double().T, mode="r").R.T
        reads = None
        if x is not None and encoder.encoder.feature_weight and R.shape[1] * x.shape[0] * x.shape[1] < x.shape[2]:
            reads = Reads.of(std * factor, R.shape[1], x)
        return cls(std, factor.to(R.dtype), R.shape[1], encoder, reads)

    @property
    def name(self) -> str:
        """The feature weight, or any weight where all of G is drawn."""
        return self.encoder.encoder.feature_weight or next(iter(self.encoder.shapes))

    def draw(self, source: NoiseSource) -> JacobianNoise:
        """G of all training clients, as far as it is read."""
        shapes, c = self.encoder.shapes, self.encoder.num_classes
        if self.reads is None:
            first, basis = self._mixed(shapes[self.name], source), None
        else:
            first = self.reads.of_draws(self._read_draws(source)).view(
                -1, self.hops, self.reads.basis.shape[2], c, shapes[self.name][0]
            )
            first, basis = first.permute(0, 1, 3, 4, 2).contiguous(), self.reads.basis
        rest = {name: self._mixed(shape, source) for name, shape in shapes.items() if name != self.name}
        return JacobianNoise(self.name, first, rest, basis)

    def _read_draws(self, source: NoiseSource) -> Tensor:
        """The standard normal numbers behind what is read ``[K L n, c m]``, the first of a draw."""
        assert self.reads is not None
        width = self.encoder.shapes[self.name][0]
        return self._normal((len(self.reads.root), self.encoder.num_classes * width), source)

    def _mixed(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        c = self.encoder.num_classes
        draws = self._normal((self.factor.shape[1], c * math.prod(shape)), source)
        return ((self.std * self.factor) @ draws).view(-1, self.hops, c, *shape)

    def _normal(self, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
        return source.normal(shape, self.factor.dtype).to(self.factor.device)

    def unread(self, weight: Tensor, places: Tensor | None, drawn_by: NoiseSource, source: NoiseSource) -> Tensor:
        """Σ_k,l,o weight_klo G_klo of the feature weight less what was read, ``[K, L, c] → [m, d]``, given that.

        ``drawn_by`` is the source of the round's draw as it was before it; ``places`` are those of the clients.
        """
        assert self.reads is not None
        m, d = self.encoder.shapes[self.name]
        if places is not None:
            everyone = weight.new_zeros(len(self.factor) // self.hops, *weight.shape[1:])
            weight = everyone.index_copy_(0, places, weight)
        draws = self._read_draws(drawn_by).view(-1, self.encoder.num_classes, m)
        return self.reads.unread(weight.flatten(0, 1), draws, self._normal((m, d), source))


@dataclass(frozen=True, eq=False)
class Reads:
    """The joint law of what the clients read of the feature weight's part, and of the rest given it.

    Args:
        covariance: Σ ``[K L, K L]``.
        basis: V_k ``[K, d, n]``.
        row: for each read, its place among the K L.
        root: B with B Bᵀ = M, the covariance of the reads ``[K L n, K L n]``.
        whitening: B⁺ᵀ, so that M⁺ times a read is that times its standard normal numbers.
        span: an orthonormal basis of all V_k together ``[d, q]``.
        inside: the direction of each read in it ``[K L n, q]``.
    """

    covariance: Tensor
    basis: Tensor
    row: Tensor
    root: Tensor
    whitening: Tensor
    span: Tensor
    inside: Tensor

    @classmethod
    def of(cls, factor: Tensor, hops: int, x: Tensor) -> Reads:
        """From T with T Tᵀ = Σ ``[K L, q]``, in double precision, and the clients' samples ``x [K, n, d]``."""
        K, n, _ = x.shape
        basis = torch.linalg.qr(x.double().mT).Q
        covariance = factor @ factor.T
        row = torch.arange(K * hops, device=x.device).repeat_interleave(n)
        direction = basis.mT[:, None].expand(-1, hops, -1, -1).flatten(0, 2)
        M = covariance[row][:, row] * (direction @ direction.T)
        require(bool(M.isfinite().all()), "std", "leave noise that 64 bits can hold", "a covariance that is not finite")
        values, vectors = torch.linalg.eigh(M)
        kept = values > values[-1].clamp_min(0) * len(values) * torch.finfo(values.dtype).eps
        safe = torch.where(kept, values, 1).sqrt()
        root, whitening = vectors * torch.where(kept, safe, 0), vectors * torch.where(kept, 1 / safe, 0)
        span = torch.linalg.qr(direction.T).Q
        parts = (covariance, basis, root, whitening, span, direction @ span)
        covariance, basis, root, whitening, span, inside = (part.to(x.dtype) for part in parts)
        return cls(covariance, basis, row, root, whitening, span, inside)

    def of_draws(self, draws: Tensor) -> Tensor:
        """What is read, from standard normal numbers."""
        return self.root @ draws

    def unread(self, weight: Tensor, draws: Tensor, normal: Tensor) -> Tensor:
        """Σ weight G less what was read of it, ``[K L, c] → [m, d]``.

        ``draws [K L n, c, m]`` are the standard normal numbers behind the reads, ``normal [m, d]`` new ones.
        Given reads y, the sum has the mean Σ_q (Σ w_o)_q (M⁺ y_o)_q v_q over reads q and classes o, and in each row
        the covariance S = |w|² I − Σ_qq' v_q (M⁺ ∘ A Aᵀ)_qq' v_q'ᵀ with A = Σ w and |w|² = Σ_o w_oᵀ Σ w_o.
        """
        A = self.covariance @ weight
        total = (weight * A).sum().clamp_min(0)
        A = A[self.row]
        coefficients = (A[..., None] * torch.tensordot(self.whitening, draws, 1)).sum(1)
        coefficients -= (weight[self.row][..., None] * torch.tensordot(self.root, draws, 1)).sum(1)
        Q = (self.whitening @ self.whitening.T) * (A @ A.T)
        lost = self.inside.T @ Q @ self.inside
        values, vectors = torch.linalg.eigh(total * torch.eye(len(lost), dtype=lost.dtype, device=lost.device) - lost)
        shrink = (vectors * (values.clamp_min(0).sqrt() - total.sqrt())) @ vectors.T
        return total.sqrt() * normal + (coefficients.T @ self.inside + (normal @ self.span) @ shrink) @ self.span.T
