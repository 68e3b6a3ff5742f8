"""Splits by time: the earliest rows train, the next ones validate, the latest ones test."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table

PARTS = (Split.TRAIN, Split.VAL, Split.TEST)


def read_order(table: Table, column: str, label: Index, problems: Problems) -> Array:
    """A column of numbers or dates (ISO 8601) as numbers ``[S]``; labelled rows must have one."""
    values = table.frame[column]
    if pd.api.types.is_numeric_dtype(values.dtype):
        order = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        order = _seconds(values)

    def where(row: int) -> str:
        return f"{table.where(row)}, column {column!r}"

    empty = values.isna().to_numpy()
    problems.add_rows(
        np.flatnonzero(~np.isfinite(order) & ~empty),
        where,
        lambda row: f"a split by time needs numbers or dates such as 2024-01-31, got {shown(values[row])}",
    )
    problems.add_rows(
        np.flatnonzero(empty & (label >= 0)), where, lambda row: "a labelled row must have a time to be split by"
    )
    return order


def split_by_order(order: Array, label: Index, fractions: tuple[float, ...]) -> Index | None:
    """Split of each labelled row ``[S]``; ``None`` where there are too few different times for it.

    Rows of one time stay together. Of the places between two times, each cut takes the one that comes nearest to the
    wanted share of the labelled rows and leaves a time to every part whose fraction is not 0.
    """
    split = np.full(len(label), int(Split.NONE))
    rows = np.flatnonzero(label >= 0)
    times, place, count = np.unique(order[rows], return_inverse=True, return_counts=True)
    wanted = [part for part, fraction in zip(PARTS, fractions, strict=True) if fraction > 0]
    if len(times) < len(wanted):
        return None
    before = np.r_[0, np.cumsum(count)] / max(1, len(rows))
    part, begin = np.full(len(times), int(wanted[-1])), 0
    for number, name in enumerate(wanted[:-1]):
        share = sum(fractions[: int(name) + 1])
        last = len(times) - (len(wanted) - 1 - number)
        choices = np.arange(begin + 1, last + 1)
        end = int(choices[np.abs(before[choices] - share).argmin()])
        part[begin:end], begin = int(name), end
    split[rows] = part[place]
    return split


def _seconds(values: pd.Series) -> Array:
    """Dates as seconds, nan where a cell is none."""
    dates = pd.to_datetime(values.astype(object), format="ISO8601", errors="coerce", utc=True)
    known = dates.notna().to_numpy()
    seconds = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    return np.where(known, seconds.to_numpy(dtype=np.float64, na_value=np.nan), np.nan)
