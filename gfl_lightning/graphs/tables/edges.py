"""The table of edges: who is connected to whom, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.compute
from scipy.sparse.csgraph import connected_components

from gfl_lightning.checks import require
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table, column_names, read_table, require_column


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """Which columns of the table of edges are its two ends and their weight, where the user names them.

    >>> EdgeColumns(weight="patients")
    EdgeColumns(source=None, target=None, weight='patients')
    """

    source: str | None = None
    target: str | None = None
    weight: str | None = None


@dataclass(frozen=True, eq=False)
class Edges:
    """Ends ``[2, edges]`` as numbers of clients, and their weights ``[edges]`` if there are any."""

    index: Index
    weight: Array | None


def read_edges(
    path: str, columns: EdgeColumns, clients: Sequence[str], samples: str, separator: str, problems: Problems
) -> Edges:
    """Read the table and note what is wrong; ``clients`` are those that have rows in the file ``samples``."""
    names = column_names(path, "edges", separator)
    require(len(names) >= 2, "edges", "have two columns of client ids", f"{path!r} with {', '.join(names)}")
    source, target = columns.source or names[0], columns.target or names[1]
    for argument, column in (("source", source), ("target", target), ("weight", columns.weight)):
        if column is not None:
            require_column(argument, column, names, path)
    require(source != target, "source and target", "be different columns", [source, target])
    weighted = columns.weight or ("weight" if "weight" in names and "weight" not in (source, target) else None)
    for name in names if weighted is None else ():
        if name.strip().lower().removesuffix("s") == "weight" and name not in (source, target):
            problems.add(f"{path} column {name!r}", "nobody uses it; name it in weight, or rename it")
    table = read_table(path, "edges", {source: ("",), target: ("",)}, ("",), separator)
    index = np.stack([_ends(table, column, clients, samples, problems) for column in (source, target)])
    if weighted is None:
        return Edges(index, None)
    weight = _weights(table, weighted, problems)
    return Edges(index[:, weight != 0], weight[weight != 0])


def components(edges: Edges, N: int, name: str) -> str | None:
    """A sentence on a graph that is not connected."""
    count, member = connected_components(adjacency_matrix(edges.index, N), directed=False)
    if count == 1:
        return None
    alone = int((np.bincount(member) == 1).sum())
    single = f", {alone} of them a single client that has no neighbour to hear" if alone else ""
    return (
        f"{name}: the graph of {N} clients falls into {count} components{single}; nothing passes between components "
        "but the shared model."
    )


def _ends(table: Table, column: str, clients: Sequence[str], samples: str, problems: Problems) -> Index:
    text = table.text(column)
    known = pyarrow.array(clients, pyarrow.large_string())
    found = pyarrow.compute.index_in(pyarrow.array(text, pyarrow.large_string(), from_pandas=True), value_set=known)
    code = found.fill_null(-1).to_numpy()
    empty = text.isna().to_numpy()

    def where(row: int) -> str:
        return f"{table.where(row)}, column {column!r}"

    problems.add_rows(np.flatnonzero(empty), where, lambda row: "the client id is empty")
    problems.add_rows(
        np.flatnonzero((code < 0) & ~empty),
        where,
        lambda row: f"client {shown(text[row])} is unknown: it has no rows in {samples}",
    )
    return code.astype(np.int64)


def _weights(table: Table, column: str, problems: Problems) -> Array:
    values = table.frame[column]
    if not pd.api.types.is_numeric_dtype(values.dtype):
        values = pd.to_numeric(values.astype(object), errors="coerce")
    weight: Array = values.to_numpy(dtype=np.float64, na_value=np.nan)
    problems.add_rows(
        np.flatnonzero(~((weight >= 0) & (weight <= np.finfo(np.float32).max))),
        lambda row: f"{table.where(row)}, column {column!r}",
        lambda row: f"a weight must be a finite number of at least 0, got {shown(_cell(table, column, row))}",
    )
    return weight


def _cell(table: Table, column: str, row: int) -> object:
    value = table.frame[column][row]
    return "" if pd.isna(value) else value.item() if isinstance(value, np.generic) else value
