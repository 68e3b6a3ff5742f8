"""The feature columns of a table as numbers or categories, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.tables.lookalikes import note_alike, note_written_numbers
from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table
from gfl_lightning.graphs.tables.settings import Settings

LARGEST = 1e25
"""Size of a number that still fits 32 bits when it is divided by the smallest deviation, 1e-12."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """A numeric feature: its values ``[S]``, nan where they are missing.

    >>> Numbers("age", np.array([30.0, np.nan])).missing.tolist()
    [False, True]
    """

    name: str
    value: Array

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have none."""
        return np.isnan(self.value)


@dataclass(frozen=True, eq=False)
class Categories:
    """A categorical feature: ``code [S]`` among its ``categories``, −1 where it is missing.

    >>> Categories("ward", np.array([0, -1, 1]), ["A", "B"]).missing.tolist()
    [False, True, False]
    """

    name: str
    code: Index
    categories: list[str]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have none."""
        return self.code < 0


Feature = Numbers | Categories


def feature_columns(table: Table, settings: Settings) -> list[str]:
    """The columns that are features."""
    if settings.features is not None:
        return list(settings.features)
    others = (settings.client, settings.label, settings.split, settings.id, settings.split_by)
    return [column for column in table.frame.columns if column not in others]


def feature_kinds(table: Table, settings: Settings, problems: Problems) -> dict[str, type[Feature] | None]:
    """The kind of each feature column of a part of a table; ``None`` where all its cells are empty."""
    columns = feature_columns(table, settings)
    full = [column for column in columns if table.frame[column].notna().any()]
    return {column: _kind(table, column, settings, problems) if column in full else None for column in columns}


def check_features(
    table: Table,
    columns: Sequence[str],
    settings: Settings,
    trained: dict[str, type[Feature]] | None,
    problems: Problems,
) -> list[Feature]:
    """Read columns as features and note what is wrong; ``trained`` are those of a trained model, if there is one."""
    features = []
    for column in columns if trained is None else trained:
        if column not in table.frame.columns:
            problems.add(table.name, f"there is no column {column!r}, a feature that the model was trained on")
            continue
        kind = _kind(table, column, settings, problems) if trained is None else trained[column]
        feature = None if kind is None else (_numbers if kind is Numbers else _categories)(table, column, problems)
        if feature is None:
            continue
        features.append(feature)
        if settings.missing == "refuse":
            problems.add_rows(
                np.flatnonzero(feature.missing),
                lambda row, column=column: f"{table.where(row)}, column {column!r}",  # type: ignore[misc]
                lambda row: "the value is missing",
            )
        if trained is None and isinstance(feature, Categories):
            _check_size(table, feature, settings, problems)
            if column not in settings.categorical:
                note_written_numbers(table, column, feature.categories, problems)
                note_alike(table, column, feature.categories, problems)
    return features


def _kind(table: Table, column: str, settings: Settings, problems: Problems) -> type[Feature] | None:
    """What a column is: as declared; else numbers if all its cells are, categories if they are text.

    A CSV column of both is a mistake in one of them, unless it is declared.
    """
    kind: type[Feature] | None = None
    values = table.frame[column]
    where = f"{table.name} column {column!r}"
    if not values.notna().any():
        problems.add(where, "the column is empty; leave it out of features")
    elif column in settings.numeric:
        kind = Numbers
    elif column in settings.categorical:
        kind = Categories
    elif pd.api.types.is_numeric_dtype(values.dtype):
        kind = Numbers
    elif isinstance(values.dtype, (pd.StringDtype, pd.CategoricalDtype)):
        kind = Numbers if table.path.suffix == ".csv" and _holds_numbers(values) else Categories
    else:
        problems.add(where, f"values of type {values.dtype} are neither numbers nor text; leave it out of features")
    return kind


def _holds_numbers(values: pd.Series) -> bool:
    """Whether some of the texts are numbers."""
    return bool(pd.to_numeric(pd.Series(values.dropna().unique(), dtype=object), errors="coerce").notna().any())


def _numbers(table: Table, column: str, problems: Problems) -> Numbers | None:
    values = table.frame[column]
    if pd.api.types.is_numeric_dtype(values.dtype):
        number = values.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(values.dtype, (pd.StringDtype, pd.CategoricalDtype)):
        number = pd.to_numeric(values.astype(object), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        problems.add_rows(
            np.flatnonzero(np.isnan(number) & values.notna().to_numpy()),
            lambda row: f"{table.where(row)}, column {column!r}",
            lambda row: f"{shown(values[row])} is not a number (if its values are categories, list it in categorical)",
        )
    else:
        problems.add(f"{table.name} column {column!r}", f"values of type {values.dtype} are not numbers")
        return None
    with np.errstate(invalid="ignore"):
        large = np.flatnonzero(np.abs(number) > LARGEST)
    problems.add_rows(
        large,
        lambda row: f"{table.where(row)}, column {column!r}",
        lambda row: f"a number must be finite and at most {LARGEST:g} in size, got {shown(float(number[row]))}",
    )
    return Numbers(column, number)


def _categories(table: Table, column: str, problems: Problems) -> Categories:
    code, categories = pd.factorize(table.text(column), sort=True)
    return Categories(column, code.astype(np.int64), categories.tolist())


def _check_size(table: Table, feature: Categories, settings: Settings, problems: Problems) -> None:
    count = len(feature.categories)
    if count > settings.max_categories:
        problems.add(
            f"{table.name} column {feature.name!r}",
            f"{count} categories are more than max_categories ({settings.max_categories}); leave out of features "
            "what tells rows apart, such as names and dates",
        )
