"""What sites agree on before training: the encoding of one table of all rows, or who does not fit and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from deploy_builders import SITES, driver, make_tables, plan, settings, sites

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.agreement import SiteRefusedError
from gfl_lightning.deploy.opening import agree
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.encoding import Code, Encoding, NumericCode


def agreed(folder: Path, tables: TablePlan) -> Encoding:
    return agree(driver(folder, plan(rounds=1, tables=tables)).ask).encoding


def whole(folder: Path, **options: Any) -> Encoding:
    return ClientTables(str(folder / "samples.csv"), str(folder / "edges.csv"), task="sc", **options).network.encoding


def edit(folder: Path, site: str, change: Any) -> None:
    """Change a site's table, and write the table of all rows anew."""
    frame = pd.read_csv(folder / f"{site}.csv")
    change(frame).to_csv(folder / f"{site}.csv", index=False)
    pd.concat([pd.read_csv(folder / f"{name}.csv") for name in SITES]).to_csv(folder / "samples.csv", index=False)


@pytest.mark.parametrize("scaling", ["shared", "per_client", "none"])
@pytest.mark.parametrize("missing", ["fill", "indicator"])
def test_the_encoding_is_that_of_one_table(tmp_path: Path, scaling: Any, missing: Any) -> None:
    make_tables(tmp_path)
    found = agreed(tmp_path, TablePlan(settings(scaling=scaling) if missing == "indicator" else _fill(scaling)))
    expected = whole(tmp_path, scaling=scaling, missing=missing)
    assert found.classes == expected.classes
    for ours, theirs in zip(found.codes, expected.codes, strict=True):
        assert_same(ours, theirs)


def assert_same(ours: Code, theirs: Code) -> None:
    """Equal, numbers up to rounding."""
    if isinstance(ours, NumericCode) and isinstance(theirs, NumericCode):
        assert (ours.name, ours.flagged) == (theirs.name, theirs.flagged)
        numbers = (theirs.fill, theirs.centre, theirs.scale)
        assert (ours.fill, ours.centre, ours.scale) == pytest.approx(numbers, rel=1e-12)
    else:
        assert ours == theirs


def _fill(scaling: Any) -> Any:
    return type(settings())(task="sc", missing="fill", scaling=scaling)


def test_a_site_without_any_value_of_a_feature_takes_part(tmp_path: Path) -> None:
    make_tables(tmp_path)
    edit(tmp_path, "south", lambda frame: frame.assign(lactate=np.nan))
    found, expected = agreed(tmp_path, TablePlan(settings())), whole(tmp_path, missing="indicator")
    assert_same(found.codes[1], expected.codes[1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.assign(colour="red"), "column 'colour' is unknown at the other sites"),
        (lambda f: f.drop(columns="age"), "there is no column 'age', a feature at the other sites"),
        (lambda f: f.assign(age="old"), "column 'age' is categorical here and numeric at the other sites"),
    ],
)
def test_a_site_that_does_not_fit_is_named_at_the_server_and_told(
    tmp_path: Path, change: Any, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_tables(tmp_path)
    edit(tmp_path, "south", change)
    with pytest.raises(SiteRefusedError, match=f"south: {sentence}"):
        driver(tmp_path, plan()).run()
    assert f"south was refused by the server: {sentence}" in caplog.text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.assign(client="a"), "client 'a' is none of this site's"),
        (lambda f: f.assign(split="sometimes"), "the split must be train, val, test or none, got 'sometimes'"),
        (lambda f: f.assign(age=["old", *f["age"][1:]]), "'old' is not a number"),
    ],
)
def test_a_sites_own_mistakes_are_told_there_and_not_to_the_server(
    tmp_path: Path, change: Any, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_tables(tmp_path)
    edit(tmp_path, "south", change)
    with pytest.raises(InputError, match=r"south: InputError in phase .*; the site's log says more") as refused:
        driver(tmp_path, plan()).run()
    assert sentence in caplog.text
    assert sentence not in str(refused.value)


def test_a_site_needs_rows_of_each_of_its_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_tables(tmp_path)
    edit(tmp_path, "north", lambda frame: frame[frame["client"] != "d"])
    with pytest.raises(InputError, match="north: InputError in phase columns"):
        driver(tmp_path, plan()).run()
    assert "client 'd' of this site has no rows" in caplog.text


def test_public_ranges_and_categories_leave_nothing_to_exchange(tmp_path: Path) -> None:
    make_tables(tmp_path)
    tables = TablePlan(
        settings(),
        ranges={"age": (0.0, 120.0), "lactate": (0.0, 10.0)},
        categories={"ward": ("A", "B", "C")},
        classes=("ill", "well"),
    )
    at = sites(tmp_path, plan(tables=tables))
    kinds = {"age": "numeric", "lactate": "numeric", "ward": "categorical"}
    assert at["south"].table.columns()["features"] == kinds
    said = at["south"].table.read(kinds, ("ill", "well")).sums()["features"]
    assert all(set(one) == {"some_missing"} for one in said.values())
    age = agreed(tmp_path, tables).codes[0]
    assert isinstance(age, NumericCode)
    assert (age.centre, age.scale) == (60.0, pytest.approx(120 / 12**0.5))
    driver(tmp_path, plan(rounds=1, tables=tables)).run()


def test_a_label_outside_the_public_classes_is_refused(tmp_path: Path) -> None:
    """At the site; which of the public labels it has is not told."""
    make_tables(tmp_path)
    at = sites(tmp_path, plan(tables=TablePlan(settings(), classes=("fine", "well"))))
    with pytest.raises(InputError, match="label 'ill' is none of the public classes fine, well"):
        at["south"].table.columns()
    at = sites(tmp_path, plan(tables=TablePlan(settings(), classes=("fine", "ill", "well"))))
    assert at["south"].table.columns()["labels"] == []


def test_a_table_without_splits_is_split_at_its_site_where_that_is_possible(tmp_path: Path) -> None:
    make_tables(tmp_path)
    for name in SITES:
        edit(tmp_path, name, lambda frame: frame.drop(columns="split"))
    outcome = driver(tmp_path, plan(rounds=1)).run()
    assert outcome.test["test"].loss > 0
    make_tables(tmp_path, "snc")
    for name in SITES:
        edit(tmp_path, name, lambda frame: frame.drop(columns="split"))
    with pytest.raises(InputError, match="InputError in phase sums"):
        agree(driver(tmp_path, plan("snc")).ask)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ranges": {"age": (5.0, 5.0)}}, "ranges.age must be two numbers, the smaller one first"),
        ({"ranges": {"age": (0.0, 1.0)}, "categories": {"age": ("a",)}}, "ranges and categories must share no column"),
        ({"classes": ("ill",)}, "classes must be at least two"),
        ({"class_weights": "heavy"}, "class_weights must be balanced"),
    ],
)
def test_what_cannot_be_public_is_refused(options: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TablePlan(settings(), **options)
    with pytest.raises(InputError, match="split_by must be left out, as no site knows the others' times"):
        TablePlan(replace(settings(), split_by="year"))
