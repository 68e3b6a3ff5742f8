"""The table of samples without its features: owner, id, label and split of each row, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gfl_lightning.checks import require
from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.lookalikes import note_alike
from gfl_lightning.graphs.tables.number_labels import check_numbers, read_numbers, refuse_many_numbers
from gfl_lightning.graphs.tables.order import read_order
from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table, column_names, read_table, require_column
from gfl_lightning.graphs.tables.settings import OPTIONAL_COLUMNS, Settings

Label = str | int | float | bool
SPLITS = {"train": Split.TRAIN, "val": Split.VAL, "validation": Split.VAL, "test": Split.TEST, "none": Split.NONE}


@dataclass(frozen=True, eq=False)
class Samples:
    """S rows of N clients.

    Args:
        table: the rows.
        clients: names of the clients, ascending.
        client: owner of each row ``[S]``; −1 where its cell is empty.
        sample: id of each row, or its number from 1 where there is no column of ids ``[S]``.
        classes: the label values, ascending.
        label: class of each row ``[S]``; −1 where it is unknown. Where labels are numbers, 0 where one is known.
        split: :class:`Split` of each row ``[S]``, or ``None`` where the table has no column for it.
        values: the labels where they are numbers ``[S]``, nan where one is unknown; else ``None``.
        order: what a split by time goes by ``[S]``, nan where it is empty; ``None`` where no column was named.
    """

    table: Table
    clients: list[str]
    client: Index
    sample: NDArray[np.object_]
    classes: tuple[Label, ...]
    label: Index
    split: Index | None
    values: Array | None = None
    order: Array | None = None


def read_samples(path: str, settings: Settings, named: Sequence[str], of_clients: Sequence[str] = ()) -> Table:
    """Read the table; columns that are ``named`` must be there, others of :data:`OPTIONAL_COLUMNS` may.

    ``of_clients`` are columns of the table of clients, which ``numeric`` and ``categorical`` may name too.
    """
    names = column_names(path, "samples", settings.separator)
    for argument in ("client", *(column for column in OPTIONAL_COLUMNS if column in named)):
        require_column(argument, getattr(settings, argument), names, path)
    if settings.split_by is not None and settings.label in names:
        require_column("split_by", settings.split_by, names, path)
    for argument in ("features", "numeric", "categorical"):
        for column in getattr(settings, argument) or ():
            require_column(argument, column, names if argument == "features" else [*names, *of_clients], path)
    others = {*settings.numeric, *settings.categorical} - {*(settings.features or names), *of_clients}
    require(not others, "features", "hold every column of numeric and categorical", f"none of {sorted(others)}")
    as_text = dict.fromkeys((settings.client, settings.id, settings.split), ("",))
    return read_table(
        path,
        "samples",
        {**as_text, settings.label: settings.missing_values},
        settings.missing_values,
        settings.separator,
    )


def check_samples(
    table: Table, settings: Settings, classes: tuple[Label, ...] | None, problems: Problems, numbers: bool = False
) -> Samples:
    """Arrange the rows and note what is wrong; ``classes`` are those of a trained model, if there is one.

    Where labels are ``numbers``, the one class is what their column is called.
    """
    columns, task = table.frame.columns, settings.task
    client, clients = _clients(table, settings, problems)
    sample = np.arange(1, len(table) + 1).astype(object)
    if settings.id in columns:
        sample = _ids(table, settings, client, clients, problems)
    label, known, values = _labels_of(table, settings, classes, numbers, problems)
    split = None
    if settings.label in columns:
        if settings.split in columns and settings.split_by is None:
            split = _splits(table, settings.split, label, problems)
    elif classes is None:
        problems.add(table.name, f"there is no column {settings.label!r} of labels to train on")
    if task == "dnc":
        second = np.flatnonzero(pd.Series(client).duplicated().to_numpy() & (client >= 0))
        problems.add_rows(
            second, table.where, lambda row: f"client {shown(clients[client[row]])} has a second row; dnc has one"
        )
    elif task == "snc":
        code, stated = (label, known) if values is None else pd.factorize(values)
        _check_one_value(table, client, clients, code, "label", lambda code: stated[code], problems)
    if task != "sc" and split is not None:
        _check_one_value(table, client, clients, split, "split", lambda code: Split(code).name.lower(), problems)
    order = None
    if settings.split_by is not None and (label >= 0).any():
        order = read_order(table, settings.split_by, label, problems)
        if task != "sc":
            code, times = pd.factorize(table.text(settings.split_by))
            _check_one_value(table, client, clients, code, settings.split_by, lambda code: times[code], problems)
    samples = Samples(table, clients, client, sample, known, label, split, values, order)
    if classes is None and settings.label in columns:
        _check_labels(samples, settings, problems)
    return samples


def label_values(table: Table, column: str) -> tuple[Label, ...]:
    """The label values of a table, ascending; none where it has no such column."""
    return _labels(table, column, None, Problems())[1] if column in table.frame.columns else ()


def ascending_labels(values: Iterable[Label]) -> tuple[Label, ...]:
    """Label values of several tables, each once, in the order that the classes of one table have."""
    return tuple(sorted({as_text(value): value for value in values}.values(), key=_ascending))


def _clients(table: Table, settings: Settings, problems: Problems) -> tuple[Index, list[str]]:
    client, clients = pd.factorize(table.text(settings.client), sort=True)
    where = _in_column(table, settings.client)
    problems.add_rows(np.flatnonzero(client < 0), where, lambda row: "the client id is empty")
    return client.astype(np.int64), clients.tolist()


def _ids(
    table: Table, settings: Settings, client: Index, clients: list[str], problems: Problems
) -> NDArray[np.object_]:
    text = table.text(settings.id)
    code, _ = pd.factorize(text)
    where = _in_column(table, settings.id)
    problems.add_rows(np.flatnonzero(code < 0), where, lambda row: "the id is empty")
    key = pd.Series(client * (len(table) + 1) + code)
    repeats = np.flatnonzero((key.duplicated().to_numpy()) & (code >= 0) & (client >= 0))

    def first(row: int) -> str:
        there = table.where(int(np.flatnonzero(key.to_numpy() == key[row])[0]))
        return f"id {shown(text[row])} of client {shown(clients[client[row]])} is a duplicate of {there}"

    problems.add_rows(repeats, where, first)
    ids: NDArray[np.object_] = table.frame[settings.id].to_numpy(dtype=object)
    return ids


def _labels_of(
    table: Table, settings: Settings, classes: tuple[Label, ...] | None, numbers: bool, problems: Problems
) -> tuple[Index, tuple[Label, ...], Array | None]:
    """Class of each row, the classes, and the numbers where labels are such; unknown where there is no column."""
    there = settings.label in table.frame.columns
    if not numbers:
        unknown = np.full(len(table), -1), classes or ()
        return (*(_labels(table, settings.label, classes, problems) if there else unknown), None)
    values = read_numbers(table, settings.label, problems) if there else np.full(len(table), np.nan)
    return np.where(np.isfinite(values), 0, -1), (settings.label,), values


def _labels(
    table: Table, column: str, classes: tuple[Label, ...] | None, problems: Problems
) -> tuple[Index, tuple[Label, ...]]:
    """Class of each row, the classes being the model's or those of the table in ascending order."""
    values = table.frame[column]
    if not (pd.api.types.is_numeric_dtype(values.dtype) or isinstance(values.dtype, pd.StringDtype)):
        values = values.astype("string")
    code, uniques = pd.factorize(values)
    found: list[Label] = [_python(value) for value in uniques.tolist()]
    if classes is None:
        note_alike(table, column, [value for value in found if isinstance(value, str)], problems)
        order = sorted(range(len(found)), key=lambda i: _ascending(found[i]))
        rank = np.argsort(order)
        return np.where(code < 0, -1, np.append(rank, -1)[code]), tuple(found[i] for i in order)
    place = {as_text(value): i for i, value in enumerate(classes)}
    mapped = np.array([place.get(as_text(value), -2) for value in found] + [-1])
    label = mapped[code]
    problems.add_rows(
        np.flatnonzero(label == -2),
        _in_column(table, column),
        lambda row: f"the model knows no label {shown(found[code[row]])}, only {', '.join(map(as_text, classes))}",
    )
    return np.maximum(label, -1), classes


def _splits(table: Table, column: str, label: Index, problems: Problems) -> Index:
    code, uniques = pd.factorize(table.text(column).str.strip().str.lower())
    parts = np.array([int(SPLITS.get(text, -2)) for text in uniques.tolist()] + [int(Split.NONE)])
    split = parts[code]
    where = _in_column(table, column)
    problems.add_rows(
        np.flatnonzero(split == -2),
        where,
        lambda row: f"the split must be train, val, test or none, got {shown(uniques[code[row]])}",
    )
    problems.add_rows(
        np.flatnonzero((split >= 0) & (label < 0)),
        where,
        lambda row: f"a row with split {shown(uniques[code[row]])} must have a label",
    )
    return np.maximum(split, int(Split.NONE))


def _check_one_value(
    table: Table,
    client: Index,
    clients: list[str],
    code: Index,
    noun: str,
    name: Callable[[int], Label],
    problems: Problems,
) -> None:
    """Note each client whose known values differ, at the first row that differs from its first."""
    rows = np.flatnonzero((code >= 0) & (client >= 0))
    owners, place, inverse = np.unique(client[rows], return_index=True, return_inverse=True)
    first = rows[place][inverse]
    differs = rows[code[rows] != code[first]]
    _, once = np.unique(client[differs], return_index=True)

    def what(row: int) -> str:
        there = int(rows[place][np.searchsorted(owners, client[row])])
        return (
            f"client {shown(clients[client[row]])} has {noun} {shown(name(int(code[row])))} here and "
            f"{shown(name(int(code[there])))} at {table.where(there)}; its rows must agree"
        )

    problems.add_rows(differs[np.sort(once)], table.where, what)


def _check_labels(samples: Samples, settings: Settings, problems: Problems) -> None:
    """Note what labels lack for training."""
    where = f"{samples.table.name} column {settings.label!r}"
    if samples.values is not None:
        check_numbers(samples.values, samples.split, where, settings.split, problems)
    else:
        _check_classes(samples, settings, problems)
        refuse_many_numbers(samples.classes, where, problems)


def _check_classes(samples: Samples, settings: Settings, problems: Problems) -> None:
    where = f"{samples.table.name} column {settings.label!r}"
    if len(samples.classes) < 2:
        found = ", ".join(shown(value) for value in samples.classes) or "none"
        problems.add(where, f"there must be at least two classes, got {found}")
    elif samples.split is not None:
        trained = samples.label[(samples.split == Split.TRAIN) & (samples.label >= 0)]
        seen = np.bincount(trained, minlength=len(samples.classes))
        for code in np.flatnonzero(seen == 0):
            problems.add(where, f"class {shown(samples.classes[code])} is empty: none of its rows has split train")
        if not (samples.split == Split.VAL).any():
            problems.add(
                f"{samples.table.name} column {settings.split!r}", "no row has split val, which picks the best round"
            )


def _in_column(table: Table, column: str) -> Callable[[int], str]:
    return lambda row: f"{table.where(row)}, column {column!r}"


def _python(value: Any) -> Label:
    """A label as a plain value; whole floating-point numbers, which integers with gaps become, as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.item() if isinstance(value, np.generic) else value


def as_text(value: Label) -> str:
    """A label as a CSV file has it."""
    return str(value)


def _ascending(value: Label) -> tuple[int, float, str]:
    """Numbers by value, before texts."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return (1, 0.0, str(value)) if math.isnan(number) else (0, number, str(value))
