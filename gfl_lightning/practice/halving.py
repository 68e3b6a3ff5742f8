"""Successive halving: all candidates make a few rounds, the better third makes three times as many, and so on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gfl_lightning.practice.rounds import Run

KEPT = 3
"""One of so many goes on, with so many times the rounds."""


@dataclass
class Candidate:
    """A setting that is tried on some splits.

    Args:
        options: what it sets.
        runs: its training on each split.
        rung: how often it went on.
    """

    options: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    rung: int = 0

    @property
    def val_loss(self) -> float:
        """Its validation loss, in the mean over splits."""
        return sum(run.val_loss for run in self.runs) / len(self.runs) if self.runs else math.inf

    @property
    def best_round(self) -> int:
        """The latest of its best rounds."""
        return max((run.best.round for run in self.runs), default=0)

    def record(self) -> dict[str, Any]:
        """For a file."""
        rounds = max((run.state.round for run in self.runs), default=0)
        loss = self.val_loss if math.isfinite(self.val_loss) else None
        return {
            "options": self.options,
            "rung": self.rung,
            "rounds": rounds,
            "best_round": self.best_round,
            "val_loss": loss,
        }


def rungs(rounds: int, number: int) -> list[int]:
    """Rounds at which some candidates are left behind; the last is ``rounds``.

    >>> rungs(270, 32)
    [10, 30, 90, 270]
    """
    steps = max(0, math.ceil(math.log(number, KEPT)) - 1)
    return [max(1, rounds // KEPT**step) for step in range(steps, -1, -1)]


def halved(
    candidates: Sequence[Candidate],
    begin: Callable[[dict[str, Any]], list[Run]],
    rounds: int,
    told: Callable[[int, int], None],
) -> Candidate:
    """The candidate with the lowest validation loss among those that were left; every run goes on where it stood.

    ``begin`` makes the runs of some options; ``told`` hears how many candidates made how many rounds.
    """
    left = list(candidates)
    for rung, limit in enumerate(rungs(rounds, len(left))):
        for one in left:
            one.runs = one.runs or begin(one.options)
            one.rung = rung
            for run in one.runs:
                run.advance(limit)
        told(len(left), limit)
        left.sort(key=lambda one: one.val_loss if math.isfinite(one.val_loss) else math.inf)
        if limit < rounds:
            left = left[: math.ceil(len(left) / KEPT)]
    return left[0]
