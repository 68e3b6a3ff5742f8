"""Pieces of Markdown: tables, and numbers as tables show them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gfl_lightning.studies.statistics import Estimate


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def plus_minus(found: Estimate | None) -> str:
    """mean ± half-width."""
    if found is None:
        return "diverged"
    return f"{found.mean:.1f}" if math.isnan(found.half_width) else f"{found.mean:.1f} ± {found.half_width:.2f}"


def mean_of(values: Sequence[float]) -> float:
    """The mean; nan of nothing."""
    return sum(values) / len(values) if values else math.nan


def number(value: float) -> str:
    """Three digits, or a dash where there is no number."""
    return "—" if math.isnan(value) else f"{value:.3g}"
