"""Between what a client computes and what it uploads: bounds on ĥ_j and ∇ĥ_j, and noise on ĥ_j.

A bounded Jacobian is the computed one times a scale, so the structured paths need only that scale: it multiplies the
factors a and s of ∇ĥ_j wherever they are used. Noise on ∇ĥ_j is drawn after aggregation (protection/jacobian_noise.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.protection.clipping import clip_scale, clipped_rows
from gfl_lightning.federated.protection.jacobian_scale import JacobianScale, Unscaled
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.parts import describe
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.protection import Protection

CHUNK_ENTRIES = 2**25


@dataclass(frozen=True, eq=False)
class UploadGuard:
    """Protects the uploads of all clients.

    Args:
        protection: bounds and noise.
        table: the samples.
        encoder: Ψ_h.
        key: of the noise.
    """

    protection: Protection
    table: SampleTable
    encoder: SizedEncoder
    key: NoiseKey

    def mean_h(self, h: Tensor, positions: Tensor | None) -> Tensor:
        """Bounded ĥ_j from h of shared samples, ``[q, c] → [N, c]``, in whatever precision the bound needs."""
        bound = self.protection.hidden.clip
        if math.isinf(bound):
            return self.table.client_mean(h, positions)
        if self.protection.unit == "sample":  # whose sum must not round by more than a sample's share of it
            return self.table.client_mean(clipped_rows(h, bound).double(), positions)
        return clipped_rows(self.table.client_mean(h, positions), bound)

    def noisy(self, h: Tensor, round_number: int, mark: bytes, who: Tensor | None) -> Tensor:
        """ĥ_j ``[N, c]`` with the noise of uploads made in a round, by the clients ``who [N]`` (``None``: all).

        Row j of the noise is client j's: a function of the key, the round and what it hides, the ``mark`` of W̄.
        """
        mechanism, dtype = self.protection.hidden, self.table.graph.x.dtype
        if not mechanism.is_noisy:
            return h.to(dtype)
        released = mechanism.released(h, self.key.source("hidden", round_number, hides=mark)).to(dtype)
        return released if who is None else released * who[:, None]

    def mark(self, weights: Weights) -> bytes:
        """What uploads made at W̄ depend on, in 32 bytes; nothing where no noise is to be bound to them."""
        if self.protection.is_inert or self.key.reproducible:
            return b""
        return digest(self._data, weights)

    @cached_property
    def _data(self) -> bytes:
        """What all uploads depend on beside W̄: the samples, Ψ_h, bounds and noise."""
        graph, encoder = self.table.graph, self.encoder
        rows = (graph.x, graph.y, graph.client, graph.split, graph.shared, graph.weight, graph.edge_index)
        return digest(
            *rows, graph.edge_weight, *(describe(part) for part in (graph.loss, encoder.encoder, self.protection))
        )

    def jacobian_scale(self, weights: Weights, positions: Tensor | None, a: Tensor | None) -> Unscaled:
        """What the bound on ∇ĥ leaves of each shared sample's Jacobian: of its client's mean, or of its own.

        ``a [q, m]`` are the activations of a structured encoder.
        """
        bound = self.protection.jacobian.clip
        if math.isinf(bound):
            return Unscaled()
        owner, _, rows = self.table.shared_columns(positions)
        x = self.table.graph.x[rows]
        if self.protection.unit == "sample":
            owner = torch.arange(len(rows), device=rows.device)
        ragged = Ragged.of(owner)
        norm = x.new_empty(len(ragged.clients))
        size = max(1, CHUNK_ENTRIES // (ragged.place.shape[1] * self._entries_per_sample))
        structure = self.encoder.structure
        for part in torch.arange(len(norm), device=norm.device).split(size):
            share = ragged.present[part].to(x.dtype) / ragged.counts[part, None]
            place = ragged.place[part]
            if structure is None or a is None:
                norm[part] = jacobian_norm(self.encoder, weights, x[place], share)
            else:
                norm[part] = structure.jacobian_norm(weights, x[place], a[place], share)
        scale = x.new_empty(len(rows))
        every = clip_scale(norm, bound)[:, None].expand_as(ragged.place)
        scale[ragged.place[ragged.present]] = every[ragged.present]
        return JacobianScale(scale)

    @property
    def _entries_per_sample(self) -> int:
        structure = self.encoder.structure
        if structure is None:
            return self.encoder.num_classes * self.encoder.num_weights
        return structure.num_features + structure.width


def jacobian_norm(encoder: SizedEncoder, weights: Weights, x: Tensor, share: Tensor) -> Tensor:
    """‖∂/∂W Σ_s share_s Ψ_h(x_s; W)‖ for each client, ``[k, n, d], [k, n] → [k]``, by forming it."""

    def mean(w: Weights, x: Tensor, share: Tensor) -> Tensor:
        return share @ encoder(w, x)

    jacobian = vmap(jacrev(mean), in_dims=(None, 0, 0))(encoder.own(weights), x, share)
    return torch.stack([part.flatten(1).square().sum(1) for part in jacobian.values()]).sum(0).sqrt()
