"""Who takes part in a round and which samples its local steps use: functions of (seed, round) or of a secret key."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import Batches, TrainingSet, draw_batches, poisson_batches
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.privacy.noise_key import NoiseKey


@dataclass(frozen=True, eq=False)
class Schedule:
    """Everything random about the rounds of a federation. Round t is the one that starts after t rounds.

    Args:
        training: the clients that can train.
        num_clients: N, all of which can share.
        participation: how many of them take part.
        local: the clients' batches and steps.
        seed: of all draws but Poisson samples.
        poisson: whether batches are Poisson samples, as DP-SGD wants them, instead of passes over the data.
        key: of the Poisson samples: who knew them would see more than their sum.
    """

    training: TrainingSet
    num_clients: int
    participation: Participation
    local: LocalTraining
    seed: int
    poisson: bool = False
    key: NoiseKey = field(default_factory=NoiseKey.fresh)

    @classmethod
    def of(
        cls,
        graph: ClientGraph,
        participation: Participation,
        local: LocalTraining,
        seed: int,
        poisson: bool = False,
        key: NoiseKey | None = None,
        every_class: bool = True,
    ) -> Schedule:
        """The schedule of a federation of the clients of a graph."""
        key = key or NoiseKey.fresh()
        return cls(TrainingSet.of(graph, every_class), graph.num_clients, participation, local, seed, poisson, key)

    @property
    def everyone_shares(self) -> bool:
        """Whether all clients share in every round."""
        return Participation.count(self.participation.share, self.num_clients) == self.num_clients

    def training_places(self, t: int) -> Tensor | None:
        """Places among the training clients of those that train in round t; ``None`` means all."""
        return self._draw(Stream.TRAINING_CLIENTS, t, self.participation.train, len(self.training))

    def who_trains(self, t: int) -> Tensor:
        """The clients that take local steps in round t."""
        places = self.training_places(t)
        return self.training.clients if places is None else self.training.clients[places]

    def who_shares(self, t: int) -> Tensor:
        """The clients that upload representations in round t."""
        drawn = self._draw(Stream.SHARING_CLIENTS, t, self.participation.share, self.num_clients)
        return torch.arange(self.num_clients, device=self.training.clients.device) if drawn is None else drawn

    def attendance(self, rounds: range) -> tuple[Tensor, Tensor]:
        """How often each client trains and shares in some rounds, two counts ``[N]``."""
        trained = torch.zeros(self.num_clients, dtype=torch.int64)
        shared = torch.zeros(self.num_clients, dtype=torch.int64)
        whole = (self.training_places(0) is None, self.everyone_shares)
        for t in range(1) if all(whole) and len(rounds) else rounds:
            trained[self.who_trains(t).cpu()] += 1
            shared[self.who_shares(t).cpu()] += 1
        return (trained * len(rounds), shared * len(rounds)) if all(whole) else (trained, shared)

    def batches(self, t: int, hides: bytes = b"") -> Batches:
        """The samples of each local step of round t, for all training clients; ``hides``: what the steps depend on."""
        steps = self.local.steps
        dtype = self.training.target.dtype
        if self.poisson:
            source = self.key.source("batches", t, hides=hides)
            return poisson_batches(self.training, self.local.batch_size, steps, source, dtype)
        return draw_batches(self.training, self.local.batch_size, steps, t * steps, self.seed, dtype)

    def batches_by_client(self, t: int) -> dict[int, list[Tensor]]:
        """The same by client, as indices of its own training samples."""
        drawn = self.batches(t)
        by_client: dict[int, list[Tensor]] = {}
        for k, (client, count) in enumerate(zip(self.training.clients.tolist(), self.training.counts, strict=True)):
            if drawn.place is None:
                by_client[client] = [torch.arange(int(count))] * self.local.steps
            else:
                by_client[client] = [p[k][w[k] > 0] for p, w in zip(drawn.place, drawn.weight, strict=True)]
        return by_client

    def _draw(self, stream: Stream, t: int, share: float | int, of: int) -> Tensor | None:
        """Places of the clients that take part, ascending; ``None`` means all."""
        count = Participation.count(share, of)
        if count == of:
            return None
        drawn = torch.randperm(of, generator=generator(self.seed, stream, t))[:count]
        return drawn.sort().values.to(self.training.clients.device)
