"""Errors that speak to the user: one sentence with the argument, the rule and the value received."""

from __future__ import annotations

import os
import reprlib
from itertools import islice
from typing import Any

LARGEST_RATE = 3.4e38
SHARE_OF_MEMORY = 0.9
LEVELS, ENTRIES, CHARACTERS = 5, 20, 1000


class InputError(ValueError):
    """A user's mistake; its text is one complete sentence that needs no traceback."""


class _Short(reprlib.Repr):
    """Python's ``repr``, that comes to an end whatever holds whatever."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = LEVELS
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = ENTRIES
        self.maxstring = self.maxlong = self.maxother = CHARACTERS

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """In the order that it has."""
        if level <= 0:
            return "{...}"
        inner = [f"{self.repr1(one, level - 1)}: {self.repr1(x[one], level - 1)}" for one in islice(x, ENTRIES)]
        return f"{{{', '.join([*inner, *['...'] * (len(x) > ENTRIES)])}}}"


def shown(value: Any) -> str:
    """A value as a sentence shows it: as Python does, and short.

    >>> twice = [1]
    >>> for _ in range(60):
    ...     twice = [twice, twice]
    >>> shown({"b": (1,), "a": 1.5}), len(shown(twice)) < 1000
    ("{'b': (1,), 'a': 1.5}", True)
    """
    text = _Short().repr(value)
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}…"


def require(condition: bool, argument: str, rule: str, received: Any) -> None:
    """Raise ``InputError("<argument> must <rule>, got <received>.")`` unless ``condition`` holds."""
    if not condition:
        raise InputError(f"{argument} must {rule}, got {shown(received)}.")


def require_count(argument: str, value: int, least: int = 1, most: int | None = None) -> None:
    """Refuse anything but a whole number of at least ``least``, and at most ``most`` where that is given."""
    require(type(value) is int, argument, f"be a whole number of at least {least}", value)
    require(value >= least, argument, f"be at least {least}", value)
    require(most is None or value <= most, argument, f"be at most {most}", value)


def require_choice(argument: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    require(value in choices, argument, f"be one of {', '.join(choices)}", value)


def require_rate(argument: str, value: float) -> None:
    """Refuse a learning rate that is not a positive number which 32 bits can hold."""
    require(_is_number(value) and 0 < value < float("inf"), argument, "be positive and finite", value)
    require_scheduled_rate(argument, value)


def require_scheduled_rate(argument: str, value: float) -> None:
    """Refuse the rate of a round; a schedule may end at 0, where nobody moves."""
    require(_is_number(value) and 0 <= value < float("inf"), argument, "be finite and not negative", value)
    require(value <= LARGEST_RATE, argument, f"be at most {LARGEST_RATE:g}, as 32 bits hold no more", value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require_room(argument: str, value: Any, numbers: float, size: int = 8) -> None:
    """Refuse a size that would need more memory than the machine has, by an estimate: ``numbers`` of ``size`` bytes."""
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    need = numbers * size
    rule = f"need no more memory than the {have / 1e9:.3g} GB of this machine (it would take about {need / 1e9:.3g} GB)"
    require(need <= SHARE_OF_MEMORY * have, argument, rule, value)
