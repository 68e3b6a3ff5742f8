"""Every option of tables: what it does, and the sentence where it cannot; a new one must find its place here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from table_builders import clinics

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.public import PublicColumns

Effect = Callable[[ClientTables, ClientTables], bool]
CLIENTS: dict[str, Any] = {"clients": "c.csv"}
NEAR: dict[str, Any] = {"edges": None, "clients": "c.csv", "neighbours": 2}


def pairs(tables: ClientTables) -> set[tuple[int, int]]:
    number = [int(str(name).split()[1]) for name in tables.names.clients]
    ends = [(number[a], number[b]) for a, b in tables.graph.edge_index.T.tolist()]
    return {(a, b) for a, b in ends if a < b}


def split_of(tables: ClientTables, part: Split) -> list[int]:
    found: list[int] = tables.graph.mask(part).nonzero().flatten().tolist()
    return found


def columns(tables: ClientTables) -> set[str]:
    return set(tables.feature_columns)


def by_year(tables: ClientTables) -> bool:
    year = torch.arange(144) % 3
    return all(bool((year[tables.graph.mask(part)] == at).all()) for at, part in enumerate(list(Split)[1:]))


def mean_age(tables: ClientTables) -> float:
    return abs(float(tables.graph.x[tables.graph.mask(Split.TRAIN)][:, tables.feature_columns["age"]].mean()))


def width(tables: ClientTables, column: str) -> int:
    place = tables.feature_columns[column]
    return place.stop - place.start


PLAIN = {"features": ["age", "marker"]}
SEMI = {"samples": "semi.csv", "edges": "semi_edges.csv", "separator": ";"}
CODES = {"samples": "s.parquet", "features": ["age", "code"]}
EFFECTS: dict[str, tuple[dict[str, Any], dict[str, Any], Effect]] = {
    "samples": (
        {},
        {"samples": "fewer.csv", "edges": "fewer_edges.csv"},
        lambda new, old: new.graph.num_samples == 120 < old.graph.num_samples,
    ),
    "edges": ({}, {"edges": "fewer_edges.csv"}, lambda new, old: pairs(new) < pairs(old)),
    "task": (
        {"label": "side"},
        {"label": "side", "task": "snc"},
        lambda new, old: bool(new.graph.shared.all()) and not bool(old.graph.shared.all()),
    ),
    "client": (PLAIN, {**PLAIN, "client": "ward", "edges": "wards.csv"}, lambda new, old: new.graph.num_clients == 3),
    "label": (PLAIN, {**PLAIN, "label": "ward"}, lambda new, old: tuple(new.names.classes) == ("A", "B", "C")),
    "split": ({}, {"split": "part"}, lambda new, old: split_of(new, Split.VAL) == list(range(1, 144, 3))),
    "split_by": ({}, {"split_by": "year"}, lambda new, old: by_year(new) and not by_year(old)),
    "id": ({}, {"id": "number"}, lambda new, old: [str(t.names.samples[1]) for t in (new, old)] == ["101", "p1"]),
    "features": ({}, {"features": ["age"]}, lambda new, old: columns(new) == {"age"} < columns(old)),
    "numeric": (
        CODES,
        {**CODES, "numeric": ["code"]},
        lambda new, old: (width(new, "code"), width(old, "code")) == (1, 3),
    ),
    "categorical": ({}, {"categorical": ["year"]}, lambda new, old: (width(new, "year"), width(old, "year")) == (3, 1)),
    "scaling": ({}, {"scaling": "none"}, lambda new, old: mean_age(old) < 1e-5 and mean_age(new) > 40),
    "missing": ({}, {"missing": "indicator"}, lambda new, old: (width(new, "marker"), width(old, "marker")) == (2, 1)),
    "missing_values": (
        {},
        {"missing_values": ["", "A"]},
        lambda new, old: new.missing_cells["ward"] > 20 and "ward" not in old.missing_cells,
    ),
    "max_categories": (
        PLAIN,
        {"features": ["age", "many"], "max_categories": 144},
        lambda new, old: new.graph.num_features > 80,
    ),
    "loss": (
        {"features": ["marker"]},
        {"features": ["marker"], "label": "age", "loss": Huber(delta=2.0)},
        lambda new, old: new.graph.loss.of_numbers and not old.graph.loss.of_numbers,
    ),
    "class_weights": (
        {},
        {"class_weights": {"ill": 3, "well": 1}},
        lambda new, old: len(new.graph.weight.unique()) == 2,
    ),
    "fractions": (
        {},
        {"fractions": [0.3, 0.3, 0.4]},
        lambda new, old: len(split_of(new, Split.TRAIN)) < 60 < len(split_of(old, Split.TRAIN)),
    ),
    "seed": ({}, {"seed": 1}, lambda new, old: split_of(new, Split.TRAIN) != split_of(old, Split.TRAIN)),
    "source": ({}, {"source": "c"}, lambda new, old: pairs(new) != pairs(old)),
    "target": ({}, {"target": "c"}, lambda new, old: pairs(new) != pairs(old)),
    "weight": (
        {},
        {"weight": "w"},
        lambda new, old: new.graph.edge_weight is not None and old.graph.edge_weight is None,
    ),
    "clients": ({}, CLIENTS, lambda new, old: columns(new) - columns(old) == {"size", "lat", "lon", "kind"}),
    "client_features": (
        CLIENTS,
        {**CLIENTS, "client_features": ["size"]},
        lambda new, old: columns(old) - columns(new) == {"lat", "lon", "kind"},
    ),
    "neighbours": (NEAR, {**NEAR, "neighbours": 4}, lambda new, old: pairs(old) < pairs(new)),
    "near": (
        NEAR,
        {**NEAR, "near": ["lat"]},
        lambda new, old: all(b - a <= 2 for a, b in pairs(new)) and pairs(new) != pairs(old),
    ),
    "distance": (
        {**NEAR, "near": ["lat", "lon"]},
        {**NEAR, "near": ["lat", "lon"], "distance": "globe"},
        lambda new, old: (0, 11) in pairs(new) - pairs(old),
    ),
    "public": (
        PLAIN,
        {"features": None, "public": PublicColumns({"age": [0.0, 120.0]}, classes=["ill", "well"])},
        lambda new, old: columns(new) == {"age"} and mean_age(new) > 0.01 > mean_age(old),
    ),
    "separator": ({}, SEMI, lambda new, old: torch.equal(new.graph.x, old.graph.x)),
}
REFUSALS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "public": (
        {"label": "age", "loss": SquaredError(), "features": None},
        PublicColumns({"marker": [0.0, 3.0]}, classes=["ill", "well"]),
        "labels must be a range where the loss is one of numbers",
    ),
    "samples": ({}, "nowhere.csv", "samples must name a file, got 'nowhere.csv'"),
    "edges": ({}, "e.txt", "edges must be a .csv or .parquet file, got 'e.txt'"),
    "task": ({}, "no", "task must be one of dnc, snc, sc, got 'no'"),
    "client": ({}, "nobody", r"client must be a column of s.csv \(client, .*\), got 'nobody'"),
    "label": ({}, "nothing", "label must be a column of s.csv .* got 'nothing'"),
    "split": (PLAIN, "ward", "the split must be train, val, test or none"),
    "split_by": ({}, "ward", "a split by time needs numbers or dates such as 2024-01-31, got '[ABC]'"),
    "id": (PLAIN, "ward", "id '[ABC]' of client 'clinic 0' is a duplicate of s.csv line"),
    "features": ({}, ["heart"], "features must be a column of s.csv .* got 'heart'"),
    "numeric": ({}, ["ward"], "'[ABC]' is not a number"),
    "categorical": ({}, ["heart"], "categorical must be a column of s.csv .* got 'heart'"),
    "scaling": ({}, "big", "scaling must be one of shared, per_client, none, got 'big'"),
    "missing": ({}, "refuse", "column 'marker': the value is missing"),
    "missing_values": ({}, ["A"], "column 'marker': '' is not a number"),
    "max_categories": ({}, 2, r"3 categories are more than max_categories \(2\)"),
    "loss": ({}, SquaredError(), "a label must be a finite number where the loss is one of numbers, got '(ill|well)'"),
    "class_weights": ({}, {"ill": -1, "well": 1}, "class_weights must be positive and finite"),
    "fractions": ({}, [0.5, 0.5, 0.5], "fractions must be three numbers of at least 0 .* that sum to 1"),
    "seed": ({}, -1, "seed must be at least 0, got -1"),
    "source": ({}, "z", r"source must be a column of e.csv \(a, b, c, w\), got 'z'"),
    "target": ({}, "a", r"source and target must be different columns, got \['a', 'a'\]"),
    "weight": ({}, "z", "weight must be a column of e.csv .* got 'z'"),
    "clients": ({}, "nowhere.csv", "clients must name a file, got 'nowhere.csv'"),
    "client_features": (CLIENTS, ["no"], "client_features must be a column of c.csv .* got 'no'"),
    "neighbours": (NEAR, 12, r"neighbours must be below the number of clients \(12\), got 12"),
    "near": (NEAR, ["no"], "near must be a column of c.csv .* got 'no'"),
    "distance": (NEAR, "globe", "near must name two columns, latitude and longitude, where distance is globe"),
    "separator": ({}, ";;", "separator must be one character"),
    "encoding": ({}, "s.csv", "encoding must be a checkpoint of this program, got 's.csv'"),
    "representations": ({}, "rows", "representations must be left out without encoding, got 'rows'"),
}
NEED_A_CHECKPOINT = {"encoding", "representations"}  # their effects: tests/lit/test_scoring_new_rows.py


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    samples, edges = clinics()
    i = samples.index.to_series()
    side = samples["client"].isin([f"clinic {k}" for k in range(6)])
    samples = samples.assign(year=i % 3, number=100 + i, part=["train", "val", "test"] * 48, many="m" + i.astype(str))
    samples = samples.assign(side=np.where(side, "left", "right"), code=(i % 3).astype(str))
    edges = edges.assign(c=edges["b"].iloc[::-1].to_numpy(), w=1.0 + edges.index)
    samples.to_csv("s.csv", index=False)
    samples.to_parquet("s.parquet")
    edges.to_csv("e.csv", index=False)
    samples.to_csv("semi.csv", index=False, sep=";")
    edges.to_csv("semi_edges.csv", index=False, sep=";")
    gone = edges[["a", "b"]].isin(["clinic 10", "clinic 11"]).any(axis=1)
    samples.iloc[:120].to_csv("fewer.csv", index=False)
    edges[~gone].to_csv("fewer_edges.csv", index=False)
    pd.DataFrame({"a": ["A", "B"], "b": ["B", "C"]}).to_csv("wards.csv", index=False)
    places = {"size": np.arange(12) * 7 % 12, "lat": np.linspace(10, 21, 12), "lon": np.linspace(-179, 179, 12)}
    people = pd.DataFrame({"client": [f"clinic {k}" for k in range(12)], **places, "kind": list("ab") * 6})
    people.to_csv("c.csv", index=False)
    return tmp_path


def tables(**options: Any) -> ClientTables:
    features = {"features": ["age", "marker", "ward", "year"]}
    return ClientTables(**{"samples": "s.csv", "edges": "e.csv", "task": "sc"} | features | options)


def test_every_option_is_here() -> None:
    known = {field.name for field in fields(ClientTables)}
    assert set(REFUSALS) == known
    assert set(EFFECTS) == known - NEED_A_CHECKPOINT


@pytest.mark.parametrize("option", REFUSALS)
def test_every_option_has_its_refusal(folder: Path, option: str) -> None:
    base, value, sentence = REFUSALS[option]
    with pytest.raises(InputError, match=sentence):
        tables(**base | {option: value}).graph  # noqa: B018


@pytest.mark.filterwarnings("ignore::gfl_lightning.graphs.tables.client_tables.TableWarning")
@pytest.mark.parametrize("option", EFFECTS)
def test_every_option_has_its_effect(folder: Path, option: str) -> None:
    before, after, effect = EFFECTS[option]
    assert option in after
    assert effect(tables(**after), tables(**before))


def test_a_column_that_is_named_for_something_else_is_no_id_by_default(tmp_path: Path) -> None:
    """Clients in a column `id`, as tables of patients have them; an unnamed column of row numbers is a feature."""
    frame = pd.DataFrame({"id": np.repeat([f"p{k}" for k in range(6)], 5), "age": range(30), "label": list("ab") * 15})
    frame.to_csv(tmp_path / "s.csv")
    (tmp_path / "e.csv").write_text("one,other\n" + "".join(f"p{k},p{(k + 1) % 6}\n" for k in range(6)))
    tables = ClientTables(str(tmp_path / "s.csv"), str(tmp_path / "e.csv"), task="sc", client="id")
    assert list(tables.names.clients) == [f"p{k}" for k in range(6)]
    assert list(tables.names.samples) == list(range(1, 31))
    assert columns(tables) == {"", "age"}
    with pytest.raises(InputError, match="client, label, split and id must be different columns"):
        ClientTables(str(tmp_path / "s.csv"), str(tmp_path / "e.csv"), task="sc", client="id", id="id")
