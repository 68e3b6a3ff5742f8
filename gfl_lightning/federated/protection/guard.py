"""Between what a client computes and what it uploads: bounds on ĥ_j and ∇ĥ_j, and noise on ĥ_j.

A bounded Jacobian is the computed one times a scale, so the structured paths need only that scale: it multiplies the
factors a and s of ∇ĥ_j wherever they are used. Noise on ∇ĥ_j is drawn after aggregation (privacy/jacobian_noise.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.protection.clipping import clip_scale, clipped_rows
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.protection import Protection

CHUNK_ENTRIES = 2**25


@dataclass(frozen=True, eq=False)
class UploadGuard:
    """Protects the uploads of all clients.

    Args:
        protection: bounds and noise.
        table: the samples.
        encoder: Ψ_h.
        seed: of the noise.
    """

    protection: Protection
    table: SampleTable
    encoder: Encoder
    seed: int

    def mean_h(self, h: Tensor, positions: Tensor | None) -> Tensor:
        """Bounded ĥ_j from h of shared samples, ``[q, c] → [N, c]``."""
        bound = self.protection.hidden_clip
        if math.isinf(bound):
            return self.table.client_mean(h, positions)
        if self.protection.unit == "sample":
            return self.table.client_mean(clipped_rows(h, bound), positions)
        return clipped_rows(self.table.client_mean(h, positions), bound)

    def noise_h(self, round_number: int, like: Tensor) -> Tensor | None:
        """The noise on ĥ_j of uploads made in a round ``[N, c]``: row j depends on (seed, round, j) alone."""
        if self.protection.hidden_std == 0:
            return None
        source = generator(self.seed, Stream.HIDDEN_NOISE, round_number)
        return torch.randn(like.shape, generator=source, dtype=like.dtype).to(like) * self.protection.hidden_std

    def jacobian_scale(self, weights: Weights, positions: Tensor | None, a: Tensor | None) -> Tensor | None:
        """min(1, C/‖∇ĥ‖) for each shared sample ``[q]``, of its client's mean or of its own; ``None`` without bound.

        ``a [q, m]`` are the activations of the paper's encoder.
        """
        bound = self.protection.jacobian_clip
        if math.isinf(bound):
            return None
        owner, _, rows = self.table.shared_columns(positions)
        x = self.table.graph.x[rows]
        if self.protection.unit == "sample":
            owner = torch.arange(len(rows), device=rows.device)
        ragged = Ragged.of(owner)
        norm = x.new_empty(len(ragged.clients))
        size = max(1, CHUNK_ENTRIES // (ragged.place.shape[1] * self._entries_per_sample))
        for part in torch.arange(len(norm), device=norm.device).split(size):
            share = ragged.present[part].to(x.dtype) / ragged.counts[part, None]
            place = ragged.place[part]
            if a is None:
                norm[part] = jacobian_norm(self.encoder, weights, x[place], share)
            else:
                norm[part] = structured_norm(weights["W2"], x[place], a[place], share)
        scale = x.new_empty(len(rows))
        every = clip_scale(norm, bound)[:, None].expand_as(ragged.place)
        scale[ragged.place[ragged.present]] = every[ragged.present]
        return scale

    @property
    def _entries_per_sample(self) -> int:
        if self.encoder.is_papers:
            return self.encoder.num_features + self.encoder.hidden[0]
        return self.encoder.num_classes * sum(math.prod(shape) for shape in self.encoder.shapes.values())


def jacobian_norm(encoder: Encoder, weights: Weights, x: Tensor, share: Tensor) -> Tensor:
    """‖∂/∂W Σ_s share_s Ψ_h(x_s; W)‖ for each client, ``[k, n, d], [k, n] → [k]``, by forming it."""
    encoder_weights = {name: weights[name] for name in encoder.shapes}

    def mean(w: Weights, x: Tensor, share: Tensor) -> Tensor:
        return share @ encoder(w, x)

    jacobian = vmap(jacrev(mean), in_dims=(None, 0, 0))(encoder_weights, x, share)
    return torch.stack([part.flatten(1).square().sum(1) for part in jacobian.values()]).sum(0).sqrt()


def structured_norm(W2: Tensor, x: Tensor, a: Tensor, share: Tensor) -> Tensor:
    """The same for h = W2 a: ‖∇ĥ‖² = c ‖ā‖² + Σ_m ‖W2[:,m]‖² ‖U[m,:]‖² with U = Σ_s share_s s_s x_sᵀ, ``[k]``."""
    mean_a = (share[..., None] * a).sum(1)
    second = W2.shape[0] * mean_a.square().sum(1)
    s = share[..., None] * a.sign()
    column = W2.square().sum(0)
    if x.shape[1] == 1:
        first = x.square().sum((1, 2)) * (s[:, 0].square() @ column)
    else:
        first = (s.mT @ x).square().sum(2) @ column
    return (first + second).sqrt()
