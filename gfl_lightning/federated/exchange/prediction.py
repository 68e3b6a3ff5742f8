"""What weights predict: the one formula, for a federation and for graphs on which nobody trains."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.engine.engine import Predictor, require_weights
from gfl_lightning.federated.exchange.exchange import Exchange, exchange
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.personal.terms import PersonalFit, Terms
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import hop_diagonals, hops, propagation
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder, Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.models.personal.shared import Shared
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

DENSE_ENTRIES = 2**20
PROPAGATED_ENTRIES = 2**25


class Prediction(Predictor):
    """Ã_kk h_{k,s} + Σ_{j≠k} Ã_kj ĥ_j for every sample s of every client k, ``[S, c]``, and its personal terms.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> prediction = Prediction(DNC(num_clients=50).graph)
    >>> weights = prediction.model.initial_weights(torch.Generator().manual_seed(0))
    >>> prediction.logits_of(weights).shape
    torch.Size([50, 2])

    Args:
        graph: the clients and their samples.
        encoder: Ψ_h.
        aggregator: Ψ_G.
        protection: bounds and noise on what clients share.
        key: of the noise; a new one where there is none.
        personal: terms of each client's own.
    """

    def __init__(
        self,
        graph: ClientGraph,
        encoder: Encoder = MLP(),  # noqa: B008  # frozen
        aggregator: Aggregator = APPNP(),  # noqa: B008
        protection: Protection = Protection(),  # noqa: B008
        key: NoiseKey | None = None,
        personal: Personal = Shared(),  # noqa: B008
    ) -> None:
        self.graph, self.personal = graph, PersonalFit(personal, graph, encoder.has_bias)
        self.model = Model(SizedEncoder(encoder, graph.num_features, graph.num_classes), aggregator)
        self.table = SampleTable.of(graph)
        self.guard = UploadGuard(protection, self.table, self.model.encoder, key or NoiseKey.fresh())
        self._unguarded = replace(self.guard, protection=Protection())
        self.propagation = propagation(graph, aggregator.gamma, graph.x.dtype)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits at any weights, every client sharing its representation at them; differentiable in the weights."""
        require_weights(weights, self.model.shapes)
        guard = self._unguarded if round_number is None else self.guard
        now = exchange(guard, round_number or 0, weights)
        return self.after(now, weights, self.terms(now, weights))

    def shared_at(self, weights: Weights) -> Tensor:
        """ĥ of every client at any weights, exact, ``[N, c]``."""
        return exchange(self._unguarded, 0, weights).uploaded_h

    def slope(self, weights: Weights) -> Tensor:
        """a_k = ∂z/∂h of every client ``[N]``: Ã_kk, or g_k Ã_kk + 1 − g_k behind a gate."""
        own = self._own(weights).to(self.graph.x)
        if not self.personal.gated:
            return own
        gate = self.terms_at(weights).gate
        return gate * own + 1 - gate

    def terms_at(self, weights: Weights) -> Terms:
        """The personal terms at any weights, every client sharing its representation at them."""
        return self.terms(exchange(self._unguarded, 0, weights), weights)

    def terms(self, now: Exchange, weights: Weights) -> Terms:
        """The personal terms that every client finds after an exchange at W̄."""
        if self.personal.is_inert:
            return self.personal.none
        return self.personal(self._of_the_graph(now, weights), now.h)

    def after(self, now: Exchange, weights: Weights, terms: Terms) -> Tensor:
        """Logits at W̄ from the exchange and the terms that were made at it: no pass over the encoder."""
        z = self._of_the_graph(now, weights)
        return z if self.personal.is_inert else self.personal.applied(terms, z, now.h)

    def _of_the_graph(self, now: Exchange, weights: Weights) -> Tensor:
        """Ã_kk h_{k,s} + C_k."""
        plain = now.everyone_shared and self.guard.protection.hidden.is_inert
        linear = self.model.encoder.encoder.linear_weight
        if plain and linear is not None and self._propagated is not None:
            return self._propagated @ weights[linear].T
        Z = self._everywhere(now.uploaded_h, weights)
        if plain and self.table.one_sample_each:
            return Z
        client = self.graph.client
        own = self._own_of_several if plain and not self.model.aggregator.learnable else self._own(weights)
        return Z[client] + own[client, None] * (now.h - now.uploaded_h[client])

    def _everywhere(self, H: Tensor, weights: Weights) -> Tensor:
        """Ã H for all clients, ``[N, c]``."""
        A = self.propagation
        if self.model.aggregator.learnable:
            gamma = self.model.gamma(weights)
            return torch.tensordot(gamma, hops(A.P, H, len(gamma) - 1), 1)
        if A.is_identity:
            return A.gamma[0].to(H.dtype) * H
        return A.apply(H) if self._dense is None else self._dense @ H

    def _own(self, weights: Weights) -> Tensor:
        """Ã_kk of all clients ``[N]``."""
        return self._hop_diagonals @ self.model.gamma(weights) if self.model.aggregator.learnable else self._diagonal

    @cached_property
    def _dense(self) -> Tensor | None:
        small = self.graph.num_clients**2 <= DENSE_ENTRIES and not self.propagation.is_identity
        return self.propagation.dense() if small else None

    @cached_property
    def _propagated(self) -> Tensor | None:
        """What a linear encoder sees of every sample, Ã_kk x_s + Σ_{j≠k} Ã_kj x̄_j ``[S, d]``, if it can be kept.

        With it the outputs are one product away from W, however deep Ã propagates.
        """
        x, client = self.graph.x, self.graph.client
        if self.model.aggregator.learnable or x.numel() > PROPAGATED_ENTRIES:
            return None
        mean = self.table.client_mean(self.table.shared_rows(x))
        around = self.propagation.apply(mean)
        if self.table.one_sample_each:
            return around
        return around[client] + self._own_of_several[client, None] * (x - mean[client])

    @cached_property
    def _own_of_several(self) -> Tensor:
        """Ã_kk of the clients with several samples ``[N]``; the sample of any other is what it shares."""
        several = (self.graph.counts() > 1).nonzero().flatten()
        own = self.graph.x.new_zeros(self.graph.num_clients)
        return own.index_copy_(0, several, self.propagation.diagonal(several)) if len(several) else own

    @cached_property
    def _diagonal(self) -> Tensor:
        return self.propagation.diagonal()

    @cached_property
    def _hop_diagonals(self) -> Tensor:
        """(P^l)_kk of all clients ``[N, L]``."""
        every = torch.arange(self.graph.num_clients, device=self.graph.x.device)
        return hop_diagonals(self.propagation.P, every, len(self.propagation.gamma) - 1)
