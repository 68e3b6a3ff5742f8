"""The clients of one site as one party: what they share and train, and how they score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.deploy.batches import OwnBatches
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.envelope import Envelope
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.client_party import ClientParty, OwnSamples
from gfl_lightning.federated.protocol.messages import Message, ModelBroadcast, RepresentationAggregate
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

Handler = Callable[[Envelope], tuple[list[Message], dict[str, Any]]]
"""Answers the envelope of a phase with messages and notes."""


@dataclass(frozen=True)
class PartyOptions:
    """What all clients of a federation have in common.

    Args:
        model: Ψ_h and Ψ_G.
        local: the clients' optimizer.
        protocol: which messages carry ∇ĥ and the update.
        compensated: whether Jacobians are shared.
        protection: bounds and noise on uploads.
    """

    model: Model
    local: LocalTraining
    protocol: ProtocolName = "jacobian"
    compensated: bool = True
    protection: Protection = Protection()  # noqa: RUF009  # frozen


class SiteParty:
    """Clients of one site; its messages are theirs.

    Args:
        graph: the site's own samples, its clients numbered from 0.
        numbers: the number of each of them in the federation.
        own: Ã_kk, or (P^l)_kk of each hop, of each ``[n, L]``.
        options: of all clients.
        batches: which samples each step uses.
        key: of the clients' noise.
    """

    def __init__(
        self,
        graph: ClientGraph,
        numbers: Sequence[int],
        own: Tensor,
        options: PartyOptions,
        batches: OwnBatches,
        key: NoiseKey | None = None,
    ) -> None:
        self.graph, self.numbers, self.own, self.model = graph, tuple(numbers), own, options.model
        self._batches, self._noise_key = batches, key or NoiseKey.fresh()
        self.clients = {k: self._client(i, k, options) for i, k in enumerate(self.numbers)}

    def _client(self, i: int, k: int, options: PartyOptions) -> ClientParty:
        graph, mine = self.graph, self.graph.client == i
        train = mine & graph.mask(Split.TRAIN)
        samples = OwnSamples(
            graph.x[mine & graph.shared], graph.x[train], graph.y[train], graph.weight[train], graph.loss
        )
        return ClientParty(
            k,
            options.model,
            samples,
            self.own[i],
            options.local,
            options.protocol,
            options.compensated,
            options.protection,
            self._noise_key,
        )

    @property
    def training_clients(self) -> int:
        """How many of the clients have anything to train on."""
        return len(self._batches.counts)

    def share(self, t: int, weights: Weights, sharing: Sequence[int]) -> list[Message]:
        """ĥ_k and ∇ĥ_k at W̄ of the clients that share in round t."""
        broadcast = ModelBroadcast(weights)
        return [message for k in sharing for message in self.clients[k].share(broadcast, t)]

    def train(
        self, t: int, weights: Weights, received: Sequence[Message], training: Sequence[int], lr: float
    ) -> list[Message]:
        """The models of the clients that train in round t; none of a client whose update is not finite."""
        broadcast, by_client = ModelBroadcast(weights), {k: list[Message]() for k in training}
        for message in received:
            by_client.get(message.client, []).append(message)  # type: ignore[attr-defined]
        batches = self._batches.of(training, t)
        return [one for k in training for one in self.clients[k].train(broadcast, by_client[k], lr, batches[k], t)]

    def logits(self, weights: Weights, received: Sequence[Message]) -> Tensor:
        """Ã_kk h_{k,s} + C_k of all the site's samples ``[S, c]``."""
        h = self.model.encoder(self.model.encoder.own(weights), self.graph.x)
        C = h.new_zeros(len(self.numbers), self.own.shape[1], h.shape[1])
        place = {k: i for i, k in enumerate(self.numbers)}
        for message in received:
            if isinstance(message, RepresentationAggregate):
                C[place[message.client]] = message.C.view(-1, h.shape[1])
        gamma = self.model.gamma(weights).to(h) if self.model.aggregator.learnable else h.new_ones(1)
        client = self.graph.client
        return (self.own @ gamma)[client, None] * h + torch.tensordot(C, gamma, ([1], [0]))[client]

    def read(self, t: int, messages: Sequence[Message]) -> list[Message]:
        """What the server sent in round t as the clients read it."""
        return list(messages)

    def sent(self, t: int, models: Sequence[Message], reports: Sequence[Message]) -> list[Message]:
        """Models and metrics of round t as they leave the site."""
        return [*models, *reports]

    def notes_on(self, training: Sequence[int], models: Sequence[Message]) -> dict[str, Any]:
        """What the server is told beside the models."""
        return {"trained": len(models), "skipped": len(training) - len(models)}

    def most_bytes(self, phase: str) -> int:
        """How large an envelope may be beyond the messages of the protocol."""
        return 0

    def handlers(self) -> dict[str, Handler]:
        """What it answers beside sharing and training, by phase."""
        return {}

    def kinds(self, phase: str) -> Kinds:
        """Kinds of messages that it takes in a phase beside the usual ones."""
        return {}
