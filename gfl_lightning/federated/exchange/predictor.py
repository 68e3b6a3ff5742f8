"""What trained weights predict on a graph where nobody trains: new rows, new clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.evaluation import Evaluator, Metrics
from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import Propagation, normalized_adjacency
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.protection import Protection


@dataclass(frozen=True, eq=False)
class Predictor:
    """Ã_kk h_{k,s} + Σ_{j≠k} Ã_kj ĥ_j, every client sharing once: a federation without its rounds.

    Args:
        graph: the clients.
        encoder: Ψ_h.
        aggregator: Ψ_G.
        protection: bounds and noise on what they share.
        seed: of the noise.
    """

    graph: ClientGraph
    encoder: Encoder
    aggregator: Aggregator
    protection: Protection
    seed: int

    def __post_init__(self) -> None:
        require(
            (self.encoder.num_features, self.encoder.num_classes) == (self.graph.num_features, self.graph.num_classes),
            "graph",
            f"have {self.encoder.num_features} features and {self.encoder.num_classes} classes, as the encoder takes",
            self.graph,
        )

    def logits_of(self, weights: Weights, round_number: int) -> Tensor:
        """Logits of every sample ``[S, c]``, protected as in the exchange after a round."""
        guard = UploadGuard(self.protection, self._table, self.encoder, self.seed)
        now = exchange(self._table, self.encoder, round_number, weights, None, {}, guard)
        A = Propagation(self._P, weights.get("gamma", self.aggregator.gamma).to(self.graph.x.device))
        client = self.graph.client
        own = (now.h - now.uploaded_h[client]) * A.diagonal()[client, None]
        return A.apply(now.uploaded_h)[client] + own

    def metrics_of(self, weights: Weights, round_number: int) -> dict[str, Metrics]:
        """Metrics on each split."""
        return Evaluator(self.graph)(self.logits_of(weights, round_number))

    @cached_property
    def _table(self) -> SampleTable:
        return SampleTable.of(self.graph)

    @cached_property
    def _P(self) -> Tensor:
        return normalized_adjacency(self.graph, torch.promote_types(self.graph.x.dtype, torch.float32))
