"""What is wrong with a user's tables: collected first, reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gfl_lightning.checks import InputError

SHOWN = 10


@dataclass
class Problems:
    """One line for each problem, with its file, line or column, and value; at most :data:`SHOWN` of a kind.

    >>> problems = Problems()
    >>> problems.add("edges.csv line 3", "the client id is empty")
    >>> problems.refuse()
    Traceback (most recent call last):
    gfl_lightning.checks.InputError: tables must be without mistakes, got 1:
      edges.csv line 3: the client id is empty
    """

    lines: list[str] = field(default_factory=list)

    def add(self, where: str, what: str) -> None:
        """Note a problem."""
        self.lines.append(f"{where}: {what}")

    def add_rows(self, rows: Iterable[int], where: Callable[[int], str], what: Callable[[int], str]) -> None:
        """Note a problem of one kind that several rows have: the first ones, and how many more there are."""
        found = list(rows)
        for row in found[:SHOWN]:
            self.add(where(row), what(row))
        if len(found) > SHOWN:
            self.lines.append(f"… and {len(found) - SHOWN} more rows with the problem of the line before")

    def refuse(self) -> None:
        """Raise one error that lists all problems, if there are any."""
        if self.lines:
            count = sum(not line.startswith("…") for line in self.lines)
            listed = "\n".join(f"  {line}" for line in self.lines)
            raise InputError(f"tables must be without mistakes, got {count}:\n{listed}")


def shown(value: Any) -> str:
    """A value as a message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}…{text[-1]}"
