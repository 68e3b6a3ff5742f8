"""What a page is made of: texts, facts, tables and figures, each of which writes itself as HTML."""

from __future__ import annotations

import base64
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

ROWS = 200


class Section(ABC):
    """A part of a page under a title of its own."""

    title: str

    @abstractmethod
    def html(self) -> str:
        """The part without its title; everything that is not markup is escaped."""


@dataclass(frozen=True, eq=False)
class Text(Section):
    """Sentences.

    >>> Text("Verdict", ["1 < 2"]).html()
    '<p>1 &lt; 2</p>'
    """

    title: str
    sentences: Sequence[str]

    def html(self) -> str:
        """A paragraph for each."""
        return "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)


@dataclass(frozen=True, eq=False)
class Facts(Section):
    """Names and values.

    >>> Facts("Data", {"clients": 12}).html()
    '<dl><dt>clients</dt><dd>12</dd></dl>'
    """

    title: str
    facts: Mapping[str, Any]

    def html(self) -> str:
        """A list of definitions."""
        lines = (f"<dt>{escape(str(name))}</dt><dd>{escape(shown(value))}</dd>" for name, value in self.facts.items())
        return f"<dl>{''.join(lines)}</dl>"


@dataclass(frozen=True, eq=False)
class Table(Section):
    """A table of at most 200 rows, and a sentence below it.

    >>> Table("Methods", pd.DataFrame({"method": ["graph"], "auroc": [0.71234]})).html().count("<td")
    2
    """

    title: str
    frame: pd.DataFrame
    note: str = ""

    def html(self) -> str:
        """Columns of numbers to the right."""
        numeric = [pd.api.types.is_numeric_dtype(kind) for kind in self.frame.dtypes]
        head = "".join(f"<th>{escape(str(name).replace('_', ' '))}</th>" for name in self.frame.columns)
        body = "".join(
            "<tr>" + "".join(_cell(value, right) for value, right in zip(row, numeric, strict=True)) + "</tr>"
            for row in self.frame.head(ROWS).itertuples(index=False)
        )
        rest = len(self.frame) - ROWS
        notes = [self.note, f"{rest} more rows are left out." if rest > 0 else ""]
        below = "".join(f'<p class="note">{escape(note)}</p>' for note in notes if note)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


@dataclass(frozen=True, eq=False)
class Picture(Section):
    """A figure, inside the page.

    >>> Picture("Loss", Figure(), "nothing yet").html().startswith('<img alt="Loss" src="data:image/png;base64,')
    True
    """

    title: str
    figure: Figure
    note: str = ""

    def html(self) -> str:
        """A PNG image in the page itself."""
        stream = io.BytesIO()
        self.figure.savefig(stream, format="png")
        data = base64.b64encode(stream.getvalue()).decode()
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f'<img alt="{escape(self.title)}" src="data:image/png;base64,{data}">{note}'


def shown(value: Any) -> str:
    """A value as a reader wants it: numbers to four digits, nothing for what is unknown.

    >>> shown(0.123456), shown(float("nan")), shown(12), shown("Ψ")
    ('0.1235', '', '12', 'Ψ')
    """
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def _cell(value: Any, right: bool) -> str:
    return f'<td class="number">{escape(shown(value))}</td>' if right else f"<td>{escape(shown(value))}</td>"
