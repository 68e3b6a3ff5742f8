"""Clients' own mixes of models: made once the rounds are over, kept beside the model, and what they predict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import DivergedError, Predictor
from gfl_lightning.federated.afterwards.fine_tuning import fine_tuned, own_representations
from gfl_lightning.federated.afterwards.mix import Mix
from gfl_lightning.federated.afterwards.mixing import mixing_weights
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.exchange.scoring import Scoring
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.personal.terms import PersonalFit, Terms
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.privacy.noise_key import digest


@dataclass(frozen=True, eq=False)
class Mixture:
    """What each client of a training heeds, and the models that it heeds beside the one that was trained.

    Args:
        weight: w ``[N, J]``; nothing where nothing was mixed.
        tuned: each client's own models ``[N, …]``.
        fedavg: FedAvg's weights; nothing without it.
        terms: the gates and levels of the clients under FedAvg.
        mark: of the clients and their samples, in hexadecimal.
    """

    weight: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    tuned: tuple[Weights, ...] = ()
    fedavg: Weights = field(default_factory=dict)
    terms: dict[str, Tensor] = field(default_factory=dict)
    mark: str = ""

    @property
    def is_inert(self) -> bool:
        """Whether nothing was mixed."""
        return not self.weight.numel()

    def record(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {**vars(self), "tuned": list(self.tuned)}

    @classmethod
    def of_record(cls, saved: dict[str, Any] | None) -> Mixture:
        """From a checkpoint, or nothing."""
        return cls() if saved is None else cls(**{**saved, "tuned": tuple(saved["tuned"])})


def mark_of(graph: ClientGraph) -> str:
    """What tells a graph from another one, as far as clients and their samples go."""
    return digest(graph.client, graph.split, graph.edge_index).hex()


class Mixed(Predictor):
    """log Σ_j w_kj p_{j,s} for classes, or what predicts Σ_j w_kj ŷ_{j,s} for numbers; w_k = e_1 for a new client.

    Args:
        base: what predicts by the model that was trained.
        mixture: what clients heed.
        personal: terms of clients under FedAvg.
        number: of each client in the training ``[N]``; −1 for a new one.
    """

    def __init__(self, base: Prediction | Scoring, mixture: Mixture, personal: Personal, number: Tensor) -> None:
        self.base, self.graph, self.mixture, self.number = base, base.graph, mixture, number
        self._personal = PersonalFit(personal, self.graph)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits at the weights that were mixed."""
        z, w, loss = self.base.logits_of(weights, round_number), self.mixture.weight, self.graph.loss
        first = torch.zeros_like(w[:1])
        first[:, 0] = 1
        w = torch.where(self.number[:, None].cpu() >= 0, w[self.number.cpu()], first)
        w = w[self.graph.client.cpu()].to(z.device)
        found = torch.zeros_like(z, dtype=torch.float64)
        for j, one in enumerate(self.outputs(z, weights)):
            found += w[:, j, None] * loss.link(one.double())
        mixed = loss.unlink(found).to(z)
        return torch.where((w[:, :1] == 1), z, mixed)

    def outputs(self, z: Tensor, weights: Weights) -> list[Tensor]:
        """Logits of every model ``J × [S, c]``, the first being ``z``."""
        graph, encoder = self.graph, self.base.model.encoder
        known = self.number >= 0
        number = torch.where(known, self.number, 0).to(graph.x.device)
        found = [z]
        if self.mixture.fedavg:
            terms = Terms(self.mixture.terms["gate"], self.mixture.terms["B"]).placed(self.number, self._personal.none)
            h = encoder({name: weight.to(graph.x) for name, weight in self.mixture.fedavg.items()}, graph.x)
            found.append(self._personal.applied(terms, h, h))
        if self.mixture.tuned:
            a, h = self.base.slope(weights)[graph.client, None], encoder(weights, graph.x)
            for W in self.mixture.tuned:
                own = own_representations(graph, encoder, {name: one.to(graph.x) for name, one in W.items()}, number)
                found.append(z + a * (own - h))
        return found


def mixture_of(
    base: Prediction, weights: Weights, mix: Mix, lr: float, rounds: int, fedavg: Federation
) -> tuple[Mixture, dict[str, float]]:
    """What clients make of their models after a training that left ``weights``, and the bytes that it took.

    Args:
        base: what predicts by them on the graph of the training.
        weights: W̄.
        mix: which models are weighed.
        lr: η of clients that train on alone.
        rounds: of FedAvg, at most.
        fedavg: its engine, on the graph as clients see it that hear of nobody; so they train on alone.
    """
    graph = base.graph
    tuned: tuple[Weights, ...] = ()
    if mix.steps:
        z = base.logits_of(weights)
        tuned = tuple(fine_tuned(fedavg.graph, base.model.encoder, weights, z, base.slope(weights), lr, mix.steps))
    other, sent = Best(), {"up": 0.0, "down": 0.0}
    terms: dict[str, Tensor] = {}
    if mix.fedavg:
        other, sent = _trained(fedavg, rounds)
        terms = fedavg.prediction.terms_at(other.weights).of_clients
    unweighed = Mixture(torch.empty(0, 0), tuned, other.weights, terms, mark_of(graph))
    number = torch.arange(graph.num_clients)
    models = Mixed(base, unweighed, base.personal.personal.ungated, number).outputs(base.logits_of(weights), weights)
    w = mixing_weights(graph, [graph.loss.link(one.double()) for one in models])
    return Mixture(w, tuned, other.weights, terms, unweighed.mark), sent


def _trained(engine: Federation, rounds: int) -> tuple[Best, dict[str, float]]:
    """The best round of so many, and the bytes of all."""
    state, best, sent = engine.start(), Best(), {"up": 0.0, "down": 0.0}
    for _ in range(rounds):
        try:
            state, report = engine.round(state)
        except DivergedError:
            break
        best = engine.choose(best, state, report)
        sent = {way: total + report.scalars[f"bytes_{way}"] for way, total in sent.items()}
    return (best if best.weights else Best(state.round, weights=state.weights)), sent
