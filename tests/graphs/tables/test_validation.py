"""Every mistake in tables has its sentence, with file, line or column, and value; all of them come at once."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from table_builders import EDGES, SAMPLES, network, written

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.network import read_network
from gfl_lightning.graphs.tables.problems import SHOWN, shown
from gfl_lightning.graphs.tables.settings import Settings

HEADER = "client,id,age,ward,label,split\n"
ONE_LABEL = SAMPLES.replace("no,", "yes,").replace("b,1,35,y,yes", "b,1,35,y,no").replace("x,yes,val", "x,no,train")


def problems(folder: Path, samples: str = SAMPLES, edges: str = EDGES, **settings: object) -> list[str]:
    with pytest.raises(InputError) as refused:
        network(folder, samples, edges, **settings)
    first, *lines = str(refused.value).splitlines()
    count = sum(not line.startswith("  …") for line in lines)
    assert first == f"tables must be without mistakes, got {count}:"
    return [line.strip() for line in lines]


def test_the_tables_of_the_other_tests_have_none(tmp_path: Path) -> None:
    assert network(tmp_path).graph.num_samples == 5


MISTAKES = [
    (
        SAMPLES,
        EDGES + "a,c,1\n",
        {},
        "edges.csv line 3, column 'target': client 'c' is unknown: it has no rows in samples.csv",
    ),
    (SAMPLES, EDGES + ",b,1\n", {}, "edges.csv line 3, column 'source': the client id is empty"),
    (SAMPLES + ",9,1,x,yes,train\n", EDGES, {}, "samples.csv line 7, column 'client': the client id is empty"),
    (
        SAMPLES + "a,1,1,x,yes,train\n",
        EDGES,
        {},
        "samples.csv line 7, column 'id': id '1' of client 'a' is a duplicate of samples.csv line 2",
    ),
    (SAMPLES + "a,,1,x,yes,train\n", EDGES, {}, "samples.csv line 7, column 'id': the id is empty"),
    (
        SAMPLES + "a,4,1,x,maybe,test\n",
        EDGES,
        {},
        "samples.csv column 'label': class 'maybe' is empty: none of its rows has split train",
    ),
    (
        SAMPLES.replace("no,", "yes,"),
        EDGES,
        {},
        "samples.csv column 'label': there must be at least two classes, got 'yes'",
    ),
    (
        ONE_LABEL + "b,3,1,x,yes,train\n",
        EDGES,
        {"task": "snc"},
        "samples.csv line 7: client 'b' has label 'yes' here and 'no' at samples.csv line 5; its rows must agree",
    ),
    (
        ONE_LABEL,
        EDGES,
        {"task": "snc"},
        "samples.csv line 4: client 'a' has split 'test' here and 'train' at samples.csv line 2; its rows must agree",
    ),
    (SAMPLES, EDGES, {"task": "dnc"}, "samples.csv line 3: client 'a' has a second row; dnc has one"),
    (
        SAMPLES + "a,4,old,x,yes,test\n",
        EDGES,
        {},
        "samples.csv line 7, column 'age': 'old' is not a number "
        "(if its values are categories, list it in categorical)",
    ),
    (
        SAMPLES,
        EDGES,
        {"numeric": ("ward",)},
        "samples.csv line 2, column 'ward': 'x' is not a number (if its values are categories, list it in categorical)",
    ),
    (
        SAMPLES + "a,4,inf,x,yes,test\n",
        EDGES,
        {},
        "samples.csv line 7, column 'age': a number must be finite and at most 1e+25 in size, got inf",
    ),
    (
        SAMPLES,
        EDGES + "b,a,-2\n",
        {},
        "edges.csv line 3, column 'weight': a weight must be a finite number of at least 0, got -2.0",
    ),
    (
        SAMPLES,
        EDGES + "b,a,inf\n",
        {},
        "edges.csv line 3, column 'weight': a weight must be a finite number of at least 0, got inf",
    ),
    (
        SAMPLES,
        EDGES + "b,a,\n",
        {},
        "edges.csv line 3, column 'weight': a weight must be a finite number of at least 0, got ''",
    ),
    (
        SAMPLES,
        EDGES + "b,a,heavy\n",
        {},
        "edges.csv line 3, column 'weight': a weight must be a finite number of at least 0, got 'heavy'",
    ),
    (
        SAMPLES.replace("test", "later"),
        EDGES,
        {},
        "samples.csv line 4, column 'split': the split must be train, val, test or none, got 'later'",
    ),
    (
        SAMPLES + "a,4,1,x,,test\n",
        EDGES,
        {},
        "samples.csv line 7, column 'split': a row with split 'test' must have a label",
    ),
    (
        SAMPLES.replace("val", "none"),
        EDGES,
        {},
        "samples.csv column 'split': no row has split val, which picks the best round",
    ),
    (
        SAMPLES + "a,4,,x,yes,test\n",
        EDGES,
        {"missing": "refuse"},
        "samples.csv line 7, column 'age': the value is missing",
    ),
    (
        SAMPLES,
        EDGES,
        {"max_categories": 1},
        "samples.csv column 'ward': 2 categories are more than max_categories (1); leave out of features what tells "
        "rows apart, such as names and dates",
    ),
    (SAMPLES.replace(",label", ",outcome"), EDGES, {}, "samples.csv: there is no column 'label' of labels to train on"),
    ("client,label\na,yes\nb,no\n", EDGES, {}, "samples.csv: there is no column of features"),
    (
        "client,age,label\na,,yes\nb,,no\n",
        EDGES,
        {},
        "samples.csv column 'age': the column is empty; leave it out of features",
    ),
    ("client,age,label\na,1,yes\nb,2,no\n", EDGES, {}, "samples.csv: too few labelled rows for a val split of rows"),
    (
        "client,age,label,split\na,,x,train\nb,,y,train\nb,3,y,val\n",
        EDGES,
        {"categorical": ("age",)},
        "samples.csv: no feature has a value in the training rows",
    ),
]


@pytest.mark.parametrize(("samples", "edges", "settings", "sentence"), MISTAKES, ids=lambda value: str(value)[-40:])
def test_every_mistake_has_its_sentence(
    tmp_path: Path, samples: str, edges: str, settings: dict[str, object], sentence: str
) -> None:
    assert sentence in problems(tmp_path, samples, edges, **settings)


def test_all_problems_come_at_once_and_a_kind_is_cut_short(tmp_path: Path) -> None:
    many = "".join(f"a,{i},old,x,yes,train\n" for i in range(100, 125))
    found = problems(tmp_path, SAMPLES + many + "a,1,1,x,yes,train\n", EDGES + "b,c,1\nb,a,-1\n")
    assert len([line for line in found if "'old' is not a number" in line]) == SHOWN
    assert f"… and {25 - SHOWN} more rows with the problem of the line before" in found
    for part in ("'c' is unknown", "is a duplicate", "got -1.0"):
        assert any(part in line for line in found)


def test_lines_count_breaks_within_cells_and_empty_lines(tmp_path: Path) -> None:
    broken = HEADER + '"a\nb",1,30,"x\n\ny",yes,train\n\n\na,2,?,x,no,train\n'
    found = problems(tmp_path, broken, "source,target\na,a\n", numeric=("age",))
    assert any(line.startswith("samples.csv line 8, column 'age': '?' is not") for line in found)


def test_parquet_files_have_rows_and_types(tmp_path: Path) -> None:
    _, edges = written(tmp_path)
    file = tmp_path / "samples.parquet"
    pd.DataFrame(
        {
            "client": ["a", "b", "b"],
            "when": pd.to_datetime(["2020-01-01"] * 3),
            "age": [1.0, float("inf"), 2.0],
            "label": [0, 1, 0],
        }
    ).to_parquet(file)
    with pytest.raises(InputError) as refused:
        read_network(str(file), edges, Settings(task="sc"))
    assert re.search(r"column 'when': values of type datetime64.* are neither numbers nor text", str(refused.value))
    assert "samples.parquet row 2, column 'age': a number must be finite" in str(refused.value)


FILES = [
    ("", EDGES, {}, r"samples must be a readable CSV file, got '.*samples.csv': No columns to parse from file\."),
    (
        SAMPLES + "a,1,2,3,4,5,6,7\n",
        EDGES,
        {},
        r"samples must be a readable CSV file, .*: Expected 6 fields in line 7, saw 8\.",
    ),
    (HEADER, EDGES, {}, r"samples must hold at least one row"),
    ("client,age,age\na,1,2\n", EDGES, {}, r"samples must name every column once, got .* with \['age'\] twice"),
    (
        SAMPLES,
        EDGES,
        {"client": "hospital"},
        r"client must be a column of samples.csv \(client, id, age, .*\), got 'hospital'",
    ),
    (SAMPLES, EDGES, {"features": ("age", "bp")}, r"features must be a column of samples.csv \(.*\), got 'bp'"),
    (SAMPLES, EDGES, {"numeric": ("bp",)}, r"numeric must be a column of samples.csv \(.*\), got 'bp'"),
    (SAMPLES, "a\nb\n", {}, r"edges must have two columns of client ids, got .*edges.csv' with a"),
    (
        SAMPLES,
        EDGES,
        {"separator": "é"},
        r"separator must be one character of ASCII, other than quotes, spaces and line breaks, got 'é'",
    ),
    (
        SAMPLES,
        EDGES,
        {"separator": "; "},
        r"separator must be one character of ASCII, other than quotes, spaces and line breaks, got '; '",
    ),
]


@pytest.mark.parametrize(("samples", "edges", "settings", "sentence"), FILES, ids=lambda value: str(value)[-40:])
def test_files_that_cannot_be_read_as_tables(
    tmp_path: Path, samples: str, edges: str, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        network(tmp_path, samples, edges, **settings)


def test_other_files_and_columns_are_refused(tmp_path: Path) -> None:
    samples, edges = written(tmp_path)
    settings = Settings(task="sc")
    (tmp_path / "bytes.csv").write_bytes(b"client,age\n\xff,1\n")
    (tmp_path / "text.parquet").write_text("no")
    for first, sentence in (
        ("none.csv", "samples must name a file, got 'none.csv'"),
        ("samples.xlsx", "samples must be a .csv or .parquet file, got 'samples.xlsx'"),
        (str(tmp_path / "bytes.csv"), "samples must be a readable CSV file, got .*utf-8"),
        (str(tmp_path / "text.parquet"), "samples must be a readable Parquet file"),
    ):
        with pytest.raises(InputError, match=sentence):
            read_network(first, edges, settings)
    with pytest.raises(InputError, match=r"split must be a column of samples\.csv"):
        read_network(samples, edges, Settings(task="sc", split="part"), ["split"])
    with pytest.raises(InputError, match=r"features must hold every column of numeric and categorical, got .*'ward'"):
        read_network(samples, edges, Settings(task="sc", features=("age",), categorical=("ward",)))
    with pytest.raises(InputError, match=r"weight must be a column of edges\.csv"):
        read_network(samples, edges, settings, edge_columns=EdgeColumns(weight="w"))
    with pytest.raises(InputError, match="source and target must be different columns"):
        read_network(samples, edges, settings, edge_columns=EdgeColumns("target", "target"))


SETTINGS = [
    ({"task": "nc"}, "task must be one of dnc, snc, sc, got 'nc'"),
    ({"scaling": "own"}, "scaling must be one of shared, per_client, none, got 'own'"),
    ({"missing": "drop"}, "missing must be one of fill, indicator, refuse, got 'drop'"),
    ({"task": "dnc", "scaling": "per_client"}, "scaling must be shared or none for dnc, where a client has one row"),
    ({"label": "client"}, "client, label, split and id must be different columns"),
    ({"features": ("label",)}, r"features must name no column of clients, labels, splits or ids, got \['label'\]"),
    ({"numeric": ("a",), "categorical": ("a",)}, r"numeric and categorical must share no column, got \['a'\]"),
    ({"split_by": "label"}, "split_by must be another column than client, label, split and id"),
    ({"features": ()}, "features must name at least one column"),
    ({"features": ("a", "a")}, "features must name every column once"),
    ({"fractions": (0.5, 0.6, -0.1)}, "fractions must be three numbers of at least 0 for train, val and test"),
    ({"seed": -1}, "seed must be at least 0"),
    ({"max_categories": 0}, "max_categories must be at least 1"),
]


@pytest.mark.parametrize(("settings", "sentence"), SETTINGS, ids=lambda value: str(value)[:40])
def test_settings_that_contradict_themselves_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Settings(**{"task": "sc", **settings})


def test_a_graph_in_pieces_is_told_with_their_number(tmp_path: Path) -> None:
    more = SAMPLES + "c,1,1,x,yes,train\nd,1,1,x,no,train\n"
    assert network(tmp_path).warnings == []
    (sentence,) = network(tmp_path, more, EDGES + "c,c,1\na,d,0\n").warnings
    assert sentence.endswith(
        "edges.csv: the graph of 4 clients falls into 3 components, 2 of them a single client that has no neighbour to "
        "hear; nothing passes between components but the shared model."
    )


def test_long_values_are_cut() -> None:
    assert shown("x" * 100) == "'" + "x" * 55 + "…'"
    assert shown("short") == "'short'"
