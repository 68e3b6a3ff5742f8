"""Cells that are not what they seem are mistakes with a line and a column, not hundreds of categories."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from table_builders import EDGES, network, written

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.reports.predictions import write_table

HEADER = "client,age,label,split\n"
ROWS = "a,{0},yes,train\na,{1},no,train\nb,{0},yes,val\nb,{1},no,test\n"


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (('"1,5"', '"2,25"'), r"samples.csv line 2, column 'age': '1,5' is a number with a decimal comma"),
        (("12 %", "7.5%"), r"samples.csv line 2, column 'age': '12 %' is a share in per cent"),
        (("2024-01-31", "2024-02-01"), r"line 2, column 'age': '2024-01-31' is a date"),
        (("31.01.2024", "1/2/24"), r"line 2, column 'age': '31.01.2024' is a date"),
        (("high", " high"), r"line 3, column 'age': ' high' and 'high' \(samples.csv line 2\) are probably the same"),
    ],
)
def test_numbers_in_writing_and_texts_alike_are_refused(tmp_path: Path, cells: tuple[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        network(tmp_path, HEADER + ROWS.format(*cells), "s,t\na,b\n")
    assert network(tmp_path, HEADER + ROWS.format(*cells), "s,t\na,b\n", categorical=("age",)).graph.num_features == 2


@pytest.mark.parametrize(("one", "other"), [("ill", " ill"), ("1", "1.0")])
def test_labels_alike_are_refused(tmp_path: Path, one: str, other: str) -> None:
    rows = f"a,1,{one},train\na,2,{other},train\nb,3,{one},val\n"
    with pytest.raises(InputError, match=rf"line 3, column 'label': '{other}' and '{one}' \(.* line 2\) are probably"):
        network(tmp_path, HEADER + rows, "s,t\na,b\n")


@pytest.mark.parametrize("which", ["samples", "edges"])
def test_short_rows_are_refused_by_their_line(tmp_path: Path, which: str) -> None:
    rows = "a,1,yes,train\na,2,no,train\nb,3,yes,val\n"
    samples = HEADER + rows + ("b,4,no\n" if which == "samples" else "")
    edges = "s,t,weight\na,b,1\n" + ("a,b\n" if which == "edges" else "")
    with pytest.raises(InputError, match=rf"{which} must have \d cells in every row, got '\d in {which}.csv line"):
        network(tmp_path, samples, edges)


@pytest.mark.parametrize("name", ["Weight", " weight", "weights"])
def test_a_column_that_looks_like_weights_is_not_passed_over(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"column '{name}': nobody uses it; name it in weight, or rename it"):
        network(tmp_path, edges=EDGES.replace("weight", name))


def test_lists_in_parquet_cells_are_refused(tmp_path: Path) -> None:
    table = pyarrow.table({"client": ["a", "b"], "age": [[1], [2, 3]], "label": ["x", "y"]})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet")
    _, edges = written(tmp_path)
    with pytest.raises(
        InputError, match=r"hold one value in each cell of s.parquet, got \"lists or records in \['age'\]"
    ):
        _ = ClientTables(str(tmp_path / "s.parquet"), edges, task="sc").graph


def test_names_that_a_spreadsheet_would_run_are_quoted(tmp_path: Path) -> None:
    table = pd.DataFrame({"client": ["=1+1", "@x", "-y", "plain"], "p_=a": [-0.5, 1.0, 0.0, 2.0]})
    write_table(table, tmp_path / "p.csv")
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines == ["client,p_=a", "'=1+1,-0.500000", "'@x,1.000000", "'-y,0.000000", "plain,2.000000"]
