"""What an attack came to: success with its interval, what guessing scores, and a plain verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gfl_lightning.attacks.attack import Attack
from gfl_lightning.attacks.scores import READ
from gfl_lightning.audit.intervals import better, interval

HARDLY, FEW = 0.05, 6


@dataclass(frozen=True)
class Finding:
    """One row of an audit.

    Args:
        adversary: who attacks.
        attack: the attack's name.
        aim: what it wants to know.
        knowledge: what it is granted beside its messages.
        measure: how success is scored.
        targets: how many clients or records were attacked.
        success: the mean score.
        low: its 95 % interval.
        high: likewise.
        blind: the mean score of guessing without messages.
        read: the share of targets with a score of 0.95 or more.
        beats_guessing: whether the difference is more than chance, at 95 %.
        verdict: a sentence.
        empirical_epsilon: what a membership test proves of ε; nan for other attacks.
    """

    adversary: str
    attack: str
    aim: str
    knowledge: str
    measure: str
    targets: int
    success: float
    low: float
    high: float
    blind: float
    read: float
    beats_guessing: bool
    verdict: str
    empirical_epsilon: float = math.nan

    @property
    def tells(self) -> bool:
        """Whether its verdict is one on what was learned: better than guessing, and not hardly so."""
        return self.beats_guessing and self.success - self.blind >= HARDLY

    def as_dict(self) -> dict[str, Any]:
        """For strict JSON."""
        return {
            name: None if isinstance(value, float) and math.isnan(value) else _short(value)
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Finding:
        """From what :meth:`as_dict` returned."""
        known: dict[str, Any] = {name: math.nan if value is None else value for name, value in record.items()}
        return cls(**known)


def found(
    attack: Attack[Any],
    knowledge: str,
    scores: Sequence[float],
    blind: Sequence[float],
    empirical_epsilon: float = math.nan,
    bounds: tuple[float, float] | None = None,
) -> Finding:
    """The finding of scores on some targets; ``bounds`` is their interval where targets share luck."""
    success, read = sum(scores) / len(scores), sum(score >= READ for score in scores) / len(scores)
    low, high = interval(scores) if bounds is None else bounds
    beats = better(scores, blind) if bounds is None else low > sum(blind) / len(blind)
    verdict = verdict_of(attack.in_words(success, read), success, sum(blind) / len(blind), beats, len(scores))
    return Finding(
        attack.adversary,
        attack.name,
        attack.aim,
        knowledge,
        attack.measure,
        len(scores),
        success,
        low,
        high,
        sum(blind) / len(blind),
        read,
        beats,
        verdict,
        empirical_epsilon,
    )


def verdict_of(words: str, success: float, blind: float, beats: bool, targets: int) -> str:
    """What a success says, beside what guessing scores: neither a small difference nor few targets are told as more.

    >>> verdict_of("all is read", 0.27, 0.25, True, 99)
    'hardly better than guessing (0.27 against 0.25)'
    >>> verdict_of("all is read", 1.0, 0.67, False, 3)
    'too few targets to tell'
    """
    if not beats:
        return "too few targets to tell" if targets < FEW and success - blind > HARDLY else "no better than guessing"
    if success - blind < HARDLY:
        return f"hardly better than guessing ({success:.2f} against {blind:.2f})"
    return words


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
