"""A federation that is trained once, with the states of some of its rounds kept: what all views are made from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.engine.best import Best
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.encoders.encoder import Weights

CONSECUTIVE, SPREAD = 100, 28


@dataclass(frozen=True, eq=False)
class Recording:
    """A training and what it left.

    Args:
        federation: what was trained.
        states: states before some rounds, in order of time, without the exchange, which follows from them.
        final: the weights of the best round by validation loss, or of the last where there is no validation.
        rounds: how many were made.
    """

    federation: Federation
    states: list[FederationState]
    final: Weights
    rounds: int

    def accuracy(self, truth: ClientGraph) -> float:
        """Accuracy of the final weights on the test samples by their true labels; nan where there are none."""
        rows = truth.mask(Split.TEST)
        logits = self.federation.logits_of(self.final)[: truth.num_samples]
        right = logits[rows].argmax(1) == truth.y[rows]
        return float(right.double().mean()) if len(right) else math.nan


def kept_rounds(rounds: int, consecutive: int = CONSECUTIVE, spread: int = SPREAD) -> set[int]:
    """The first rounds, and as many again spread over the others."""
    later = torch.linspace(min(consecutive, rounds - 1), rounds - 1, spread).round().int().tolist()
    return set(range(min(consecutive, rounds))) | set(later)


def record(
    federation: Federation,
    rounds: int,
    before_each: Callable[[], object] = lambda: None,
    kept: set[int] | None = None,
) -> Recording:
    """Train and keep; ``before_each`` round the privacy account is charged."""
    keep = kept_rounds(rounds) if kept is None else kept
    state, best, states = federation.start(), Best(), []
    final = state.weights
    for number in range(rounds):
        if number in keep:
            states.append(replace(state, weights=_own(state.weights), exchange=None))
        before_each()
        state, report = federation.round(state)
        chosen = federation.choose(best, state, report)
        if chosen is not best or math.isnan(report.metrics["val"].loss):
            final = _own(state.weights)
        best = chosen
    return Recording(federation, states, final, rounds)


def shared_records(federation: Federation, client: int) -> Tensor:
    """The samples that enter a client's representation ``[n, d]``."""
    graph = federation.graph
    return graph.x[(graph.client == client) & graph.shared]


def _own(weights: Weights) -> Weights:
    """Copies that any transformation of torch.func may take."""
    return {name: weight.detach().clone() for name, weight in weights.items()}
