"""Splits by time: what trains is earlier than what validates, and that earlier than what tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_builders import network

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.order import split_by_order

EDGES = "one,other\na,b\n"


def rows(times: list[object], task: str = "sc") -> str:
    label = ["yes", "no"] * len(times)
    lines = [f"{'ab'[i % 2]},{i},{label[i // 2]},{time}" for i, time in enumerate(times)]
    return "client,age,label,when\n" + "\n".join(lines) + "\n"


@given(
    st.lists(st.integers(0, 8), min_size=3, max_size=60),
    st.sampled_from([(0.6, 0.2, 0.2), (0.2, 0.2, 0.6), (0.8, 0.2, 0.0), (0.0, 0.0, 1.0)]),
)
@settings(max_examples=200, deadline=None)
def test_no_row_is_later_than_one_of_a_later_part(times: list[int], fractions: tuple[float, ...]) -> None:
    order, label = np.array(times, dtype=float), np.zeros(len(times), dtype=np.int64)
    label[::7] = -1
    found = split_by_order(order, label, fractions)
    known = label >= 0
    distinct = len(np.unique(order[known]))
    parts = sum(fraction > 0 for fraction in fractions)
    if distinct < parts:
        assert found is None
        return
    assert found is not None
    assert (found[~known] == Split.NONE).all()
    for early, late in ((Split.TRAIN, Split.VAL), (Split.VAL, Split.TEST), (Split.TRAIN, Split.TEST)):
        if (found == early).any() and (found == late).any():
            assert order[found == early].max() < order[found == late].min()
    for part, fraction in zip((Split.TRAIN, Split.VAL, Split.TEST), fractions, strict=True):
        assert (found == part).any() == (fraction > 0)


def test_shares_are_the_wanted_ones_where_times_differ() -> None:
    order = np.random.default_rng(0).permutation(100).astype(float)
    found = split_by_order(order, np.zeros(100, dtype=np.int64), (0.6, 0.2, 0.2))
    assert found is not None
    assert (found[order < 60] == Split.TRAIN).all()
    assert (found[(order >= 60) & (order < 80)] == Split.VAL).all()
    assert (found[order >= 80] == Split.TEST).all()


@pytest.mark.parametrize("dates", [False, True])
def test_numbers_and_dates_are_times_and_no_feature(tmp_path: Path, dates: bool) -> None:
    years = [2020 + i // 4 for i in range(20)]
    times: list[object] = [f"{year}-02-0{1 + i % 4}" if dates else year for i, year in enumerate(years)]
    found = network(tmp_path, rows(times), EDGES, split_by="when")
    assert found.graph.num_features == 1
    part = found.graph.split.numpy()
    assert [set(part[np.array(years) == year]) for year in range(2020, 2025)] == [{0}, {0}, {0}, {1}, {2}]
    used = network(tmp_path, rows(times), EDGES, split_by="when", features=("age", "when"), categorical=("when",))
    assert used.graph.num_features > 1


def test_what_is_no_time_is_told_by_line(tmp_path: Path) -> None:
    times: list[object] = ["2020-01-01", "soon", "", *[f"2020-01-{day:02d}" for day in range(2, 9)]]
    with pytest.raises(InputError) as refusal:
        network(tmp_path, rows(times), EDGES, split_by="when")
    text = str(refusal.value)
    assert "line 3, column 'when': a split by time needs numbers or dates such as 2024-01-31, got 'soon'" in text
    assert "line 4, column 'when': a labelled row must have a time to be split by" in text
    with pytest.raises(InputError, match="column 'when': too few different times for a split into train, val and test"):
        network(tmp_path, rows([1, 2] * 5), EDGES, split_by="when")
    with pytest.raises(InputError, match=r"split_by must be a column of samples\.csv"):
        network(tmp_path, rows([1, 2, 3] * 5), EDGES, split_by="then")
    with pytest.raises(InputError, match=r"has when '2' here and '1' at .*; its rows must agree"):
        network(tmp_path, "client,age,label,when\na,1,x,1\na,2,x,2\nb,3,y,3\n", EDGES, task="snc", split_by="when")
    file = str(tmp_path / "samples.csv")
    with pytest.raises(InputError, match="split_by must be left out where split names a column, got 'when'"):
        ClientTables(file, str(tmp_path / "edges.csv"), task="sc", split="part", split_by="when")
