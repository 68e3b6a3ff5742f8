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

from gfl_lightning.reports.numerals import numeral

ROWS, LONG = 200, 15
POINTS = 96  # of a page to an inch of a figure, which has more pixels
HEADINGS = {"auroc": "AUROC", "f1": "F1", "rmse": "RMSE", "mae": "mean absolute error", "r2": "R²"}
HEADINGS |= {"spearman": "rank correlation"}


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
        head = "".join(_cell(heading(name), right, "th") for name, right in zip(self.frame, numeric, strict=True))
        body = "".join(
            "<tr>" + "".join(_cell(value, right) for value, right in zip(row, numeric, strict=True)) + "</tr>"
            for row in zip(*(in_digits(column) for _, column in self.frame.head(ROWS).items()), strict=True)
        )
        rest = len(self.frame) - ROWS
        notes = [self.note, f"{rest} more rows are left out." if rest > 0 else ""]
        below = "".join(f'<p class="note">{escape(note)}</p>' for note in notes if note)
        kind = "wide long" if len(self.frame) > LONG else "wide"
        return f'<div class="{kind}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}'


@dataclass(frozen=True, eq=False)
class Picture(Section):
    """A figure, inside the page.

    >>> Picture("Loss", Figure(), "nothing yet").html().startswith('<img alt="Loss" width="')
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
        width = round(POINTS * self.figure.get_size_inches()[0])
        return f'<img alt="{escape(self.title)}" width="{width}" src="data:image/png;base64,{data}">{note}'


def heading(name: Any) -> str:
    """The name of a column as a reader wants it.

    >>> heading("log_loss"), heading("auroc")
    ('log loss', 'AUROC')
    """
    return HEADINGS.get(str(name), str(name).replace("_", " "))


def in_digits(column: pd.Series) -> list[Any]:
    """The cells of a column, its numbers with fractions all to the place that the largest shows four digits of.

    >>> in_digits(pd.Series([0.5, -12.345, float("nan"), -0.001]))
    ['0.50', '−12.35', '', '0.00']
    """
    if not pd.api.types.is_float_dtype(column.dtype):
        return list(column)
    sizes = [abs(value) for value in column if math.isfinite(value) and value]
    places = min(4, max(0, 3 - math.floor(math.log10(max(sizes))))) if sizes else 0
    cells = ["" if math.isnan(value) else f"{value:.{places}f}" for value in column]
    return [cell.replace("-", "−" if cell.strip("-0.") else "") for cell in cells]


def shown(value: Any) -> str:
    """A value as a reader wants it: numbers to four digits, nothing for what is unknown.

    >>> shown(0.123456), shown(float("nan")), shown(12), shown("Ψ")
    ('0.1235', '', '12', 'Ψ')
    """
    if isinstance(value, float):
        return "" if math.isnan(value) else numeral(value)
    return "" if value is None else str(value)


def _cell(value: Any, right: bool, kind: str = "td") -> str:
    place = ' class="number"' if right else ""
    return f"<{kind}{place}>{escape(shown(value))}</{kind}>"
