"""The server as an object of its own: it keeps the graph, W̄ and the uploads that stand, stacked over clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.exchange.neighbourhood import rows_by_hop
from gfl_lightning.federated.protection.protected_messages import is_finite
from gfl_lightning.federated.protocol.messages import (
    FactorModelUpload,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelBroadcast,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.federated.protocol.standing_factors import StandingFactors
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.optimizer import ServerOptimizer, ServerState
from gfl_lightning.federated.server.weighting import rescaled
from gfl_lightning.graphs.propagation import Propagation, hop_diagonals, hops
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.model import Model


@dataclass(eq=False)
class ServerParty:
    """The server of N clients: Ã, W̄ and the uploads that stand.

    Args:
        propagation: Ã of the graph of clients.
        model: Ψ_h and Ψ_G.
        weights: W̄.
        votes: weight of each client in the average ``[N]``; 0 where it does not train.
        optimizer: what it makes of the average.
    """

    propagation: Propagation
    model: Model
    weights: Weights
    votes: Tensor
    optimizer: ServerOptimizer = field(default_factory=Average)
    round: int = field(default=0, init=False)
    memory: ServerState = field(default_factory=dict, init=False)
    uploaded_in: Tensor = field(init=False)
    factors: StandingFactors = field(init=False)
    _h: Tensor = field(init=False)
    _jacobian: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.forget()

    @property
    def num_clients(self) -> int:
        """N."""
        return self.propagation.num_clients

    @cached_property
    def training(self) -> Tensor:
        """The clients that can train, ascending."""
        return self.votes.nonzero().flatten()

    @cached_property
    def own(self) -> Tensor:
        """Ã_kk, or (P^l)_kk of each hop, of every client ``[N, L]``: what each is told once."""
        every = torch.arange(self.num_clients)
        if self.model.aggregator.learnable:
            return hop_diagonals(self.propagation.P, every, len(self.propagation.gamma) - 1)
        return self.propagation.diagonal(every)[:, None]

    @cached_property
    def others(self) -> Tensor:
        """Ã_kj, or (P^l)_kj, with j = k set to 0, for the clients k that can train ``[K, L, N]``."""
        return rows_by_hop(self.propagation, self.training, self.model.aggregator.learnable)[0]

    def broadcast(self) -> ModelBroadcast:
        """W̄, before steps 1 and 3."""
        return ModelBroadcast(self.weights)

    def forget(self) -> None:
        """Drop every upload."""
        like = next(iter(self.weights.values()))
        self.uploaded_in = torch.full((self.num_clients,), -1)
        self._h = like.new_zeros(self.num_clients, self.model.encoder.num_classes)
        self._jacobian = like.new_zeros(0)
        self.factors = StandingFactors(self.model.encoder, self.num_clients, like)

    def receive(self, message: Message) -> None:
        """Keep an upload; it stands until the client sends another."""
        if isinstance(message, RepresentationUpload):
            self._h[message.client] = message.h
            self.uploaded_in[message.client] = self.round
        elif isinstance(message, JacobianUpload):
            row = torch.cat([message.jacobian[name].flatten() for name in self.model.encoder.shapes])
            if not len(self._jacobian):
                self._jacobian = row.new_zeros(self.num_clients, len(row))
            self._jacobian[message.client] = row
        elif isinstance(message, FactorUpload):
            self.factors.receive(message, self.round, self.weights)
        else:
            raise TypeError(f"message must be an upload of a representation or Jacobian, got {type(message).__name__}.")

    def representations(self, clients: Sequence[int]) -> list[Message]:
        """Step 3: C_k of some clients, which they train and predict with."""
        if self.model.aggregator.isolates:
            return []
        where = torch.tensor(list(clients), dtype=torch.int64)
        if self.model.aggregator.learnable:
            powers = hops(self.propagation.P, self._h, len(self.propagation.gamma) - 1)[:, where].transpose(0, 1)
            C = powers - self.own[where][:, :, None] * self._h[where][:, None]
        else:
            C = self._everywhere[where] - self.own[where] * self._h[where]
        return [RepresentationAggregate(k, part) for k, part in zip(where.tolist(), C, strict=True)]

    @property
    def _everywhere(self) -> Tensor:
        """Ã Ĥ ``[N, c]``."""
        return self.propagation.apply(self._h)

    def jacobians(self, clients: Sequence[int]) -> list[Message]:
        """Step 3: ∇C_k of some clients that train, whole or by its factors; nothing where none is shared (V1)."""
        place = {int(k): i for i, k in enumerate(self.training.tolist())}
        rows = self.others[[place[k] for k in clients]]
        if not len(clients):
            return []
        if not self.factors.is_empty:
            return self.factors.aggregates(list(clients), rows[:, 0], self.round, self.weights)
        if not len(self._jacobian):
            return []
        mixed = (rows.flatten(0, 1) @ self._jacobian).view(len(rows), rows.shape[1], -1)
        return [JacobianAggregate(k, self._by_weight(part)) for k, part in zip(clients, mixed, strict=True)]

    def _by_weight(self, flat: Tensor) -> Weights:
        """∇C_k by weight ``[c, …]``, or of each hop ``[L, c, …]``, from one vector for each hop ``[L, c |W|]``."""
        c, shapes = self.model.encoder.num_classes, self.model.encoder.shapes
        sizes = [c * torch.Size(shape).numel() for shape in shapes.values()]
        lead = (len(flat), c) if self.model.aggregator.learnable else (c,)
        parts = flat.split(sizes, dim=1)
        return {name: part.reshape(*lead, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def aggregate(self, k: int) -> list[Message]:
        """Step 3: what client k gets of the others to train with."""
        return [*self.representations([k]), *self.jacobians([k])]

    def average(self, uploads: Sequence[Message], lr: float) -> int:
        """Step 2: the clients' models become W̃, and W̃ the next W̄; how many were left out as they are not finite."""
        finite = [upload for upload in uploads if is_finite(upload)]
        if not finite:
            raise DivergedError(
                f"lr must be small enough for finite updates, got {lr}: in round {self.round + 1} the update of every "
                "training client became non-finite."
            )
        vote = rescaled(self.votes[[upload.client for upload in finite]])  # type: ignore[attr-defined]
        self.take(self._mean(finite, vote, lr))
        return len(uploads) - len(finite)

    def take(self, average: Weights) -> None:
        """Make the next W̄ of W̃; uploads that stand are one round older then."""
        weights, memory = self.optimizer.step(self.weights, average, self.memory)
        if not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise DivergedError(
                f"server must leave finite weights, got {self.optimizer}: in round {self.round + 1} its step made them "
                "non-finite."
            )
        self.weights, self.memory = weights, memory
        self.round += 1

    def _mean(self, uploads: Sequence[Message], vote: Tensor, lr: float) -> Weights:
        """Σ_k vote_k W_k, also where W_k is known by the factors of its update alone."""
        whole = [(v, one.weights) for v, one in zip(vote, uploads, strict=True) if isinstance(one, ModelUpload)]
        total = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        for v, weights in whole:
            for name in total:
                total[name] += v * weights[name]
        by_factors = [i for i, one in enumerate(uploads) if isinstance(one, FactorModelUpload)]
        if by_factors:
            place = {int(k): i for i, k in enumerate(self.training.tolist())}
            chosen = [uploads[i] for i in by_factors]
            rows = self.others[[place[one.client] for one in chosen], 0]  # type: ignore[attr-defined]
            moved = self.factors.moved(chosen, vote[by_factors], rows, self.weights, lr)  # type: ignore[arg-type]
            total = {name: weight + moved[name] for name, weight in total.items()}
        return total

    def age(self, t: int) -> Tensor:
        """Rounds since the last upload of each client ``[N]``; −1 where there was none."""
        return torch.where(self.uploaded_in >= 0, t - self.uploaded_in, -1)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain containers of tensors and numbers."""
        uploads = {"uploaded_in": self.uploaded_in, "h": self._h, "jacobian": self._jacobian}
        return {
            "round": self.round,
            "weights": self.weights,
            "memory": self.memory,
            "uploads": uploads | self.factors.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` returned."""
        self.round, self.weights, self.memory = state["round"], dict(state["weights"]), dict(state["memory"])
        uploads = dict(state["uploads"])
        self.uploaded_in, self._h, self._jacobian = (uploads.pop(name) for name in ("uploaded_in", "h", "jacobian"))
        self.factors.load(uploads)
