"""Cells that are probably not what they seem: numbers written as text, and texts that differ in nothing one sees."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table

WRITTEN_NUMBERS = {
    "a number with a decimal comma": re.compile(r"[+-]?\d+,\d+"),
    "a share in per cent": re.compile(r"[+-]?\d+([.,]\d+)?\s*%"),
    "a date": re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./](\d{4}|\d{2})"),
}
SHARE = 0.5


def note_written_numbers(table: Table, column: str, categories: Sequence[str], problems: Problems) -> None:
    """Note a column of categories that are mostly numbers or dates in writing, at the first row that has one."""
    for what, pattern in WRITTEN_NUMBERS.items():
        matching = [text for text in categories if pattern.fullmatch(text.strip())]
        if matching and len(matching) >= SHARE * len(categories):
            row = int(table.text(column).isin(matching).to_numpy().argmax())
            problems.add(
                f"{table.where(row)}, column {column!r}",
                f"{shown(table.text(column)[row])} is {what}: write a plain number, leave the column out of features, "
                "or list it in categorical",
            )
            return


def note_alike(table: Table, column: str, values: Sequence[str], problems: Problems) -> None:
    """Note values of a column that differ only by spaces at their ends, or only as 1 and 1.0 do."""
    for key in (str.strip, _number):
        first: dict[str, str] = {}
        for value in values:
            other = first.setdefault(key(value), value)
            if other != value:
                _note_pair(table, column, other, value, problems)


def _note_pair(table: Table, column: str, one: str, other: str, problems: Problems) -> None:
    text = table.text(column)
    (first, earlier), (second, later) = sorted(
        (int((text == value).to_numpy().argmax()), value) for value in (one, other)
    )
    problems.add(
        f"{table.where(second)}, column {column!r}",
        f"{shown(later)} and {shown(earlier)} ({table.where(first)}) are probably the same",
    )


def _number(text: str) -> str:
    """A text that is a number, as the number."""
    try:
        return repr(float(text))
    except ValueError:
        return text
