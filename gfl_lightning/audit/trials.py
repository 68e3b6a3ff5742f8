"""Trials: an attack on its targets, one by one, and what guessing without messages would have scored on each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gfl_lightning.attacks.attack import Attack
from gfl_lightning.attacks.views import View
from gfl_lightning.audit.findings import Finding, found


@dataclass(frozen=True, eq=False)
class Trial:
    """One attack on one target."""

    view: View
    knowledge: Any
    truth: Tensor


@dataclass(eq=False)
class Tally:
    """An attack with some side knowledge, and its scores so far."""

    attack: Attack[Any]
    knows: str
    scores: list[float] = field(default_factory=list)
    blind: list[float] = field(default_factory=list)

    def add(self, trial: Trial) -> bool:
        """Attack a target; false where the attack has not got what it needs."""
        attack = self.attack
        if not self.scores and not attack.applies(trial.view):
            return False
        guess = attack.guess(attack.looks_at(trial.view), trial.knowledge)
        self.scores.append(attack.score(guess, trial.truth))
        self.blind.append(attack.score(attack.blind(trial.knowledge), trial.truth))
        return True

    def finding(self) -> list[Finding]:
        """What it came to; nothing where there was no target."""
        return [found(self.attack, self.knows, self.scores, self.blind)] if self.scores else []


def run(attack: Attack[Any], knows: str, trials: Iterable[Trial]) -> list[Finding]:
    """The attack on each target; nothing where there is none, or it has not got what it needs."""
    tally = Tally(attack, knows)
    for trial in trials:
        if not tally.add(trial):
            break
    return tally.finding()
