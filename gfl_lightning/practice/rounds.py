"""Rounds of an engine until its validation loss has not fallen for a while."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import DivergedError, Engine, EngineState
from gfl_lightning.graphs.client_graph import Split

PATIENCE = 40


@dataclass
class Run:
    """An engine that makes rounds when it is asked to, and remembers the best.

    >>> from gfl_lightning.baselines.central import CentralDescent
    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> run = Run(CentralDescent(KarateClub().graph, lr=0.2))
    >>> run.advance(3).state.round
    3

    Args:
        engine: what trains.
        patience: rounds without a lower validation loss after which it stops.
    """

    engine: Engine[Any]
    patience: int = PATIENCE
    best: Best = field(default_factory=Best)
    stopped: bool = False
    state: EngineState = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.engine.start()

    def advance(self, rounds: int) -> Run:
        """Go on to so many rounds in all, unless it has stopped before; one that diverges stops."""
        while self.state.round < rounds and not self.stopped:
            try:
                self.state, report = self.engine.round(self.state)
            except DivergedError:
                self.stopped = True
                break
            self.best = self.engine.choose(self.best, self.state, report)
            lost = not math.isfinite(report.metrics["val"].loss)
            self.stopped = lost or self.state.round - self.best.round >= self.patience
        return self

    @property
    def val_loss(self) -> float:
        """The lowest validation loss so far; infinite where there is none."""
        return self.best.val_loss

    def prediction(self) -> Tensor:
        """What the best weights predict of every sample ``[S, c]``."""
        engine = self.engine
        return engine.graph.loss.link(engine.logits_of(self.best.weights, self.best.round)).cpu()


class IsolatedRun(Run):
    """Clients that train alone, each picking its own best round by its own validation samples.

    With few of them the lowest of many losses is lower than what the picked round would lose on other samples. So each
    sample is judged at the round that the client's *other* validation samples pick, or all clients' if it has no other:
    that mean is `val_loss`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows = self.engine.graph.mask(Split.VAL).nonzero().flatten()
        self._losses: list[Tensor] = []

    def advance(self, rounds: int) -> Run:
        """The same, noting the loss of every validation sample in each round."""
        while self.state.round < rounds and not self.stopped:
            before = self.state.round
            super().advance(before + 1)
            if self.state.round > before:
                logits = self.engine.logits_of(self.state.weights)
                self._losses.append(self.engine.graph.losses(logits[self._rows], self._rows))
        return self

    @property
    def val_loss(self) -> float:
        """The mean loss of validation samples at rounds that they did not help to pick."""
        if not self._losses:
            return math.inf
        return corrected_loss(torch.stack(self._losses), self.engine.graph.client[self._rows])


def corrected_loss(losses: Tensor, client: Tensor) -> float:
    """Mean over samples of the loss at the round that the others of its client pick: ``[T, V], [V]``.

    >>> two_rounds = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    >>> round(corrected_loss(two_rounds, torch.tensor([0, 0])), 4)  # each is judged where the other is best
    0.85
    """
    losses = losses.double()
    N = int(client.max()) + 1
    total = losses.new_zeros(len(losses), N).index_add_(1, client, losses)
    others = total[:, client] - losses
    alone = torch.bincount(client, minlength=N)[client] == 1
    others[:, alone] = losses.mean(1, keepdim=True)
    return float(losses.gather(0, others.argmin(0, keepdim=True)).mean())
