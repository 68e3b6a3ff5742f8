"""Labels that are numbers, and labels that only look like classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table

MANY, MANY_FRACTIONS, SOME = 100, 20, 10
"""More different whole numbers, or numbers with fractions, than classes usually have; and enough to ask."""


def read_numbers(table: Table, column: str, problems: Problems) -> Array:
    """The numbers of a column ``[S]``, nan where they are missing."""
    cells = table.frame[column]
    values = cells
    if not pd.api.types.is_numeric_dtype(cells.dtype):
        values = pd.to_numeric(cells.astype(object), errors="coerce")
    found: Array = values.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    wrong = ~np.isfinite(found) & ~cells.isna().to_numpy()
    problems.add_rows(
        np.flatnonzero(wrong),
        lambda row: f"{table.where(row)}, column {column!r}",
        lambda row: f"a label must be a finite number where the loss is one of numbers, got {shown(cells[row])}",
    )
    return found


def check_numbers(values: Array, split: Index | None, where: str, split_column: str, problems: Problems) -> None:
    """Note what is missing for training on numbers."""
    known = values[np.isfinite(values)]
    if len(np.unique(known)) < 2:
        problems.add(where, f"labels must be at least two different numbers, got {len(np.unique(known))}")
    elif split is not None:
        for part, what in ((Split.TRAIN, "to train on"), (Split.VAL, "which picks the best round")):
            if not (split == part).any():
                problems.add(f"{where}, split {split_column!r}", f"no row has split {part.name.lower()}, {what}")


def refuse_many_numbers(classes: Sequence[object], where: str, problems: Problems) -> None:
    """Note a column of so many different numbers that it can hardly hold classes."""
    numbers = [_number(value) for value in classes]
    if any(math.isnan(value) for value in numbers):
        return
    fractions = not all(value.is_integer() for value in numbers)
    if len(numbers) > (MANY_FRACTIONS if fractions else MANY):
        problems.add(
            where,
            f"{len(numbers)} different numbers are too many for classes: for regression say loss: SquaredError "
            "(or Huber, or Poisson for counts)",
        )


def number_classes(classes: Sequence[object], where: str) -> str | None:
    """A sentence where classes are more different numbers than most classes are, but not too many to be some."""
    if len(classes) <= SOME or any(math.isnan(_number(value)) for value in classes):
        return None
    return (
        f"{where}: {len(classes)} different numbers are taken as classes, in no order; if they are amounts or counts, "
        "say loss: SquaredError (or Huber, or Poisson for counts)."
    )


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan
