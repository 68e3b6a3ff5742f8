"""The table of clients: public attributes, a row per client, as features and as the profile that makes edges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow
import pyarrow.compute

from gfl_lightning.checks import require
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.tables.features import Categories, Feature, Numbers, check_features
from gfl_lightning.graphs.tables.neighbours import NeighbourRule, check_places
from gfl_lightning.graphs.tables.problems import Problems, shown
from gfl_lightning.graphs.tables.reading import Table, column_names, read_table, require_column
from gfl_lightning.graphs.tables.settings import Settings

Kinds = dict[str, type[Feature]]


@dataclass(frozen=True, eq=False)
class ClientRows:
    """What the table of clients says of the N clients that have samples; nothing where there is no such table.

    Args:
        features: of the model, each with a value per client.
        near: what distances are measured by, each with a value per client.
        rule: how the nearest clients are found, its columns named; ``None`` where edges come from elsewhere.
    """

    features: Sequence[Feature] = ()
    near: Sequence[Feature] = ()
    rule: NeighbourRule | None = None


def read_clients(
    path: str,
    settings: Settings,
    clients: Sequence[str],
    taken: Collection[str],
    rule: NeighbourRule | None,
    trained: tuple[Kinds, Kinds] | None,
    problems: Problems,
) -> ClientRows:
    """Read the table and note what is wrong.

    Args:
        path: the file.
        settings: its column of ids is the one of the samples; ``client_features`` are those of the model.
        clients: the clients that have samples.
        taken: features of the samples, which must have other names.
        rule: how the nearest clients are found, if they are asked for.
        trained: the features and the profile of a trained model, if there is one.
        problems: takes what is wrong.
    """
    names = column_names(path, "clients", settings.separator)
    require_column("client", settings.client, names, path)
    others = [name for name in names if name != settings.client]
    columns = others if settings.client_features is None else list(settings.client_features)
    columns = columns if trained is None else list(trained[0])
    near = () if rule is None else others if rule.near is None else rule.near
    for argument, named in (("client_features", columns), ("near", near)):
        for column in named:
            require_column(argument, column, names, path)
    both = sorted(set(taken) & set(columns))
    require(not both, "client_features", "have other names than the features of the samples ([] for none)", both)
    table = read_table(path, "clients", {settings.client: ("",)}, settings.missing_values, settings.separator)
    row = _rows(table, settings.client, clients, problems)
    asked = list(dict.fromkeys([*columns, *near]))
    kinds = None if trained is None else {**trained[1], **trained[0]}
    read = check_features(table, asked, settings, kinds, problems)
    if kinds is not None:  # a network of its own may be measured by what the model was not trained on
        read += check_features(table, [name for name in near if name not in kinds], settings, None, problems)
    found = {feature.name: _taken(feature, row) for feature in read}
    features = [found[name] for name in columns if name in found]
    profile = [found[name] for name in near if name in found]
    if rule is not None:
        require(bool(near), "clients", "have columns to find neighbours by", path)
        check_places(rule, profile, table.name, problems)
        rule = replace(rule, near=tuple(near))
    return ClientRows(features, profile, rule)


def _rows(table: Table, column: str, clients: Sequence[str], problems: Problems) -> Index:
    """The row of each client ``[N]``."""
    ids = table.text(column)
    problems.add_rows(
        np.flatnonzero(ids.isna()), lambda row: f"{table.where(row)}, column {column!r}", lambda row: "the id is empty"
    )
    problems.add_rows(
        np.flatnonzero(ids.duplicated() & ids.notna()),
        lambda row: f"{table.where(row)}, column {column!r}",
        lambda row: f"client {shown(ids[row])} has a second row; the table of clients has one for each",
    )
    asked = pyarrow.array(clients, pyarrow.large_string())
    known = pyarrow.array(ids, pyarrow.large_string(), from_pandas=True)
    row = pyarrow.compute.index_in(asked, value_set=known).fill_null(-1).to_numpy().astype(np.int64)
    problems.add_rows(
        np.flatnonzero(row < 0),
        lambda k: table.name,
        lambda k: f"client {shown(clients[k])} has samples but no row here",
    )
    return row


def _taken(feature: Feature, row: Index) -> Feature:
    if isinstance(feature, Numbers):
        return Numbers(feature.name, feature.value[row])
    return Categories(feature.name, feature.code[row], feature.categories)
