"""Step 2 of a round: the contract of what turns the average W̃ of the clients' models into the next W̄."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from gfl_lightning.models.encoders.encoder import Weights

ServerState = dict[str, Weights]


class ServerOptimizer(ABC):
    """W̄ ← step(W̄, W̃): Δ = W̃ − W̄ is minus a gradient, of which an optimizer may keep a memory.

    A subclass is a frozen dataclass of its options with one method. Its memory is data that it is given and hands back,
    so that a round stays a function and a checkpoint holds everything.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class HalfWay(ServerOptimizer):
    ...     def step(self, weights, average, state):
    ...         delta = difference(weights, average)
    ...         return {name: weight + delta[name] / 2 for name, weight in weights.items()}, state
    >>> HalfWay().step({"W": torch.zeros(1)}, {"W": torch.ones(1)}, {})[0]["W"].tolist()
    [0.5]
    """

    @abstractmethod
    def step(self, weights: Weights, average: Weights, state: ServerState) -> tuple[Weights, ServerState]:
        """The next W̄ and the memory after it; ``state`` is empty before the first step."""


def difference(weights: Weights, average: Weights) -> Weights:
    """Δ = W̃ − W̄."""
    return {name: average[name] - weight for name, weight in weights.items()}


def zeros(weights: Weights) -> Weights:
    """A memory that holds nothing yet."""
    return {name: torch.zeros_like(weight) for name, weight in weights.items()}
