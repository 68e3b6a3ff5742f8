"""What weights predict: the one formula, for a federation and for graphs on which nobody trains."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.checks import require_count
from gfl_lightning.engine.engine import Predictor, require_weights
from gfl_lightning.federated.exchange.exchange import Exchange, exchange
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import hop_diagonals, hops, propagation
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder, Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.protection import Protection

DENSE_ENTRIES = 2**20


class Prediction(Predictor):
    """Ã_kk h_{k,s} + Σ_{j≠k} Ã_kj ĥ_j for every sample s of every client k, ``[S, c]``.

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
        seed: of the noise.
    """

    def __init__(
        self,
        graph: ClientGraph,
        encoder: Encoder = MLP(),  # noqa: B008  # frozen
        aggregator: Aggregator = APPNP(),  # noqa: B008
        protection: Protection = Protection(),  # noqa: B008
        seed: int = 0,
    ) -> None:
        require_count("seed", seed, least=0)
        self.graph = graph
        self.model = Model(SizedEncoder(encoder, graph.num_features, graph.num_classes), aggregator)
        self.table = SampleTable.of(graph)
        self.guard = UploadGuard(protection, self.table, self.model.encoder, seed)
        self._unguarded = UploadGuard(Protection(), self.table, self.model.encoder, seed)
        self.propagation = propagation(graph, aggregator.gamma, graph.x.dtype)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits at any weights, every client sharing its representation at them; differentiable in the weights."""
        require_weights(weights, self.model.shapes)
        guard = self._unguarded if round_number is None else self.guard
        return self.after(exchange(guard, round_number or 0, weights), weights)

    def after(self, now: Exchange, weights: Weights) -> Tensor:
        """Logits at W̄ from the exchange that was made at it: no pass over the encoder."""
        Z = self._everywhere(now.uploaded_h, weights)
        if self.table.one_sample_each and now.everyone_shared and self.guard.protection.hidden.is_inert:
            return Z
        client = self.graph.client
        return Z[client] + self._own(weights)[client, None] * (now.h - now.uploaded_h[client])

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
    def _diagonal(self) -> Tensor:
        return self.propagation.diagonal()

    @cached_property
    def _hop_diagonals(self) -> Tensor:
        """(P^l)_kk of all clients ``[N, L]``."""
        every = torch.arange(self.graph.num_clients, device=self.graph.x.device)
        return hop_diagonals(self.propagation.P, every, len(self.propagation.gamma) - 1)
