"""Whatever tables come: they train for a round, or there is a clear message.

Two steps at rate 0.1 cannot overflow on features of moderate size, so there the loss must be a number. Larger ones,
which tables without scaling or with outliers have, may diverge: then the weights stay finite, or training is refused.
"""

from __future__ import annotations

import csv
import io
import math
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from table_builders import network

from gfl_lightning.checks import InputError
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.tables.network import read_network
from gfl_lightning.graphs.tables.settings import Settings
from gfl_lightning.models.encoders.mlp import MLP

MODERATE = 1e3
CLIENTS = st.sampled_from(["a", "b", "c", "007", "NA", "ä,ö", 'with "quotes"', "two\nlines"])
NUMBERS = st.one_of(st.floats(width=32).map(str), st.integers(-(10**40), 10**40).map(str), st.just(""))
WORDS = st.one_of(
    st.sampled_from(["x", "y", "z", "", "NA", "True", "1"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
)
CLEAN: dict[str, st.SearchStrategy[str]] = {
    "age": st.floats(-100, 100, width=32).map(str) | st.just(""),
    "ward": st.sampled_from(["x", "y", "z", ""]),
    "label": st.sampled_from(["yes", "no", "yes", "no", ""]),
    "split": st.sampled_from(["train", "val", "test"]),
    "weight": st.sampled_from(["1", "0.5", "2"]),
}
MESSY: dict[str, st.SearchStrategy[str]] = {
    "age": NUMBERS,
    "ward": WORDS,
    "label": st.sampled_from(["yes", "no", "1", "2", "maybe"]),
    "split": st.sampled_from(["train", "val", "test", "none", "", "later"]),
    "weight": NUMBERS,
}


@st.composite
def any_tables(draw: st.DrawFn, task: str) -> tuple[str, str]:
    """Tables of samples and edges as the task wants them, but for some columns that hold anything."""
    messy = draw(st.sets(st.sampled_from([*MESSY, "client", "id", "ends"]), max_size=1) | st.just(set()))
    cell = {name: MESSY[name] if name in messy else CLEAN[name] for name in CLEAN}
    columns = ["client", "age", *draw(st.sets(st.sampled_from(["ward", "label", "split", "id"])) | st.just(["label"]))]
    known = draw(st.lists(CLIENTS, min_size=3, max_size=8, unique=True))
    alike = {(client, name): draw(cell[name]) for client in known for name in ("label", "split")}
    rows = []
    for i in range(draw(st.integers(1, 30))):
        client = known[i % len(known)] if "client" not in messy else draw(CLIENTS | st.just(""))
        row = {name: draw(strategy) for name, strategy in cell.items()} | {"client": client, "id": str(i)}
        row |= {"id": draw(st.sampled_from(["1", "2", ""]))} if "id" in messy else {}
        if task != "sc" and not {"label", "split", "client"} & messy:
            row |= {name: alike[client, name] for name in ("label", "split") if alike[client, "label"]}
        if row["split"] in ("train", "val", "test") and not row["label"] and "label" not in messy:
            row["label"] = "no"
        rows.append(tuple(row[name] for name in columns))
    rows = rows[: len(known)] if task == "dnc" else rows
    ends = CLIENTS if "ends" in messy else st.sampled_from(sorted({row[0] for row in rows}))
    links = draw(st.lists(st.tuples(ends, ends, cell["weight"]), min_size=1, max_size=20))
    return _csv([tuple(columns), *rows]), _csv([("s", "t", "weight"), *links])


def _csv(rows: list[tuple[str, ...]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    return stream.getvalue()


def _trains(samples: str, edges: str, chosen: Settings) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "samples.csv"), Path(folder, "edges.csv")
        for file, text in zip(files, (samples, edges), strict=True):
            file.write_bytes(text.encode())
        try:
            graph = read_network(str(files[0]), str(files[1]), chosen).graph
        except InputError as refused:
            event("refused")
            message = str(refused)
        else:
            message = ""
    if message:
        assert message.endswith(".") or "\n  " in message
        return
    event("trained")
    federation = Federation(graph, MLP((3,)), local=LocalTraining(0.1, 2))
    moderate = float(graph.x.abs().max()) <= MODERATE
    try:
        state, report = federation.round(federation.start())
    except DivergedError as diverged:
        event("diverged")
        assert not moderate
        assert str(diverged).startswith("lr must be small enough")  # noqa: PT017  # either outcome is right
        return
    assert all(bool(weight.isfinite().all()) for weight in state.weights.values())
    assert not moderate or 0 <= report.metrics["train"].loss < math.inf


@st.composite
def tasks(draw: st.DrawFn) -> tuple[tuple[str, str], Settings]:
    """Tables and settings for the same task."""
    task = draw(st.sampled_from(["sc", "sc", "snc", "dnc"]))
    chosen = Settings(
        task=task,  # type: ignore[arg-type]
        scaling=draw(st.sampled_from(["shared", "none"] if task == "dnc" else ["shared", "per_client", "none"])),
        missing=draw(st.sampled_from(["fill", "fill", "indicator", "refuse"])),
        categorical=draw(st.sampled_from([(), (), ("age",)])),
        seed=draw(st.integers(0, 5)),
    )
    return draw(any_tables(task)), chosen


@given(tasks())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_tables_train_or_are_refused_with_a_message(drawn: tuple[tuple[str, str], Settings]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _trains(*drawn[0], drawn[1])


def test_huge_numbers_without_scaling_are_refused_with_a_message(tmp_path: Path) -> None:
    rows = "a,1e25,yes,train\na,-1e25,no,train\nb,-1e25,no,train\nb,1e25,yes,train\nb,1,no,val\n"
    with pytest.raises(InputError, match=r"x must have samples of a norm of at most 1e\+18"):
        network(tmp_path, "client,age,label,split\n" + rows, "s,t\na,b\n", scaling="none")


@given(st.text(max_size=60), st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_text_is_refused_with_a_message(samples: str, edges: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _trains(
            "client,label,age\n" + samples.encode(errors="ignore").decode(),
            edges.encode(errors="ignore").decode(),
            Settings(task="sc"),
        )
