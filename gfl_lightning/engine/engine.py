"""What trains in rounds: the contract of the federation, of the centralised networks and of clients that train alone.

One Lightning adapter (`lit`) and one loop of studies serve every engine. A state is data: the rounds done, the weights,
and whatever else the next round depends on; making a round is a function of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.divergence import EXPLODED, largest_loss
from gfl_lightning.engine.evaluation import Evaluator, Metrics
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class EngineState:
    """Where training stands.

    Args:
        round: rounds done.
        weights: the model by name.
    """

    round: int
    weights: Weights


@dataclass(frozen=True)
class Report:
    """What a round tells about itself: metrics of the new weights by split."""

    round: int
    metrics: dict[str, Metrics]

    @property
    def scalars(self) -> dict[str, float]:
        """What else is worth logging."""
        return {}


class DivergedError(RuntimeError):
    """Training has no finite weights any more; ``state`` is the last good one, where it is known."""

    def __init__(self, message: str, state: EngineState | None = None) -> None:
        super().__init__(message)
        self.state = state


class Predictor(ABC):
    """What weights predict on a client graph, also where nobody trains."""

    graph: ClientGraph

    @abstractmethod
    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits of every sample ``[S, c]`` at any weights.

        With the number of the round that left these weights, everything that is shared on the way is protected as in
        that round; without one it is exact.
        """

    def metrics_of(self, weights: Weights, round_number: int | None = None) -> dict[str, Metrics]:
        """Metrics of any weights on each split."""
        return self.evaluator(self.logits_of(weights, round_number))

    @cached_property
    def evaluator(self) -> Evaluator:
        """Metrics from logits."""
        return Evaluator(self.graph)


S = TypeVar("S", bound=EngineState)


class Engine(Predictor, Generic[S]):
    """A model and the rounds that train it on the samples of a client graph; it never changes once it is made.

    The loop of every training, whatever the engine:

    >>> from gfl_lightning.baselines.central import CentralDescent
    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> engine, best = CentralDescent(KarateClub().graph, lr=0.2), Best()
    >>> state = engine.start()
    >>> for _ in range(3):
    ...     state, report = engine.round(state)
    ...     best = engine.choose(best, state, report)
    >>> state.round, best.round
    (3, 3)
    """

    lr: float
    updates_per_round: int = 1

    @abstractmethod
    def start(self, weights: Weights | None = None) -> S:
        """The state before the first round, from given weights or from those of the engine's seed."""

    @abstractmethod
    def round(self, state: S, lr: float | None = None) -> tuple[S, Report]:
        """One round from a state; ``lr`` replaces the rate for this round."""

    def progress(self, state: S) -> dict[str, Any]:
        """What :meth:`resume` needs beside the round and the weights: plain containers of tensors and numbers."""
        return {}

    @abstractmethod
    def resume(self, round_number: int, weights: Weights, progress: dict[str, Any]) -> S:
        """The state that these were taken from."""

    def choose(self, best: Best, state: S, report: Report) -> Best:
        """The better of the best weights so far and those of a state: the lower validation loss."""
        loss = report.metrics["val"].loss
        return Best(state.round, loss, state.weights) if loss < best.val_loss else best

    def require_convergence(self, metrics: dict[str, Metrics], lr: float, before: S) -> None:
        """Stop where a round has made the training loss explode; ``before`` is the state that it started from."""
        loss = metrics["train"].loss
        if not loss <= self._unsuspicious or not math.isfinite(loss):
            first = self.metrics_of(self.start().weights)["train"].loss  # a sample may be far out from the beginning
            if loss <= EXPLODED * first < math.inf:
                return
            raise DivergedError(
                f"lr must be small enough for a training loss that does not explode, got {lr}: in round "
                f"{before.round + 1} the loss became {loss:.4g}.",
                before,
            )

    @cached_property
    def _unsuspicious(self) -> float:
        return largest_loss(self.graph)

    def __deepcopy__(self, memo: dict[int, object]) -> Engine[S]:
        return self


def require_weights(weights: Weights, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse weights of other names or shapes, or that are not finite."""
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    require(found == shapes, "weights", f"have the shapes {shapes}", found)
    bad = [name for name, weight in weights.items() if not bool(torch.isfinite(weight).all())]
    require(not bad, "weights", "be finite", f"non-finite entries in {', '.join(bad)}")
