"""The summary of a fit: a record that any file can hold, and one screen."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from graph_builders import random_clients

from gfl_lightning.engine.best import Best
from gfl_lightning.engine.evaluation import ClassMetrics
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.parts import describe
from gfl_lightning.reports.screen import part_text, render
from gfl_lightning.reports.summary import Fit, part_record, write_summary

TRAFFIC: dict[str, float] = {
    "bytes_up": 1200, "printed_bytes_up": 2_500_000, "bytes_down": 999, "printed_bytes_down": 999
}  # fmt: skip
FIT = Fit(
    status="finished",
    model="GFL",
    parts={"data": DNC(60), "aggregator": describe(SGC(3)), "protection": {"class_path": "x.Hidden"}},
    best=Best(3, 0.5),
    test=ClassMetrics(0.6, 0.61, 0.75, 0.5),
    rounds=7,
    updates_per_round=10,
    seconds=1.23456,
    totals=TRAFFIC,
    privacy=None,
    seed=4,
)


@dataclass(frozen=True)
class Odd:
    """A part with options that no file knows."""

    file: Path = Path("a/b")
    graph: Any = None
    values: Any = None
    inner: SGC = SGC(2)  # noqa: RUF009  # frozen
    bound: float = math.inf


def test_the_record_is_what_was_reached(tmp_path: Path) -> None:
    written = json.loads(write_summary(tmp_path / "new", FIT.record()).read_text())
    assert (written["rounds"], written["updates"], written["seconds"], written["best_round"]) == (7, 70, 1.235, 3)
    assert (written["test_accuracy"], written["test_client_accuracy"], written["val_loss"]) == (0.75, 0.5, 0.5)
    assert written["bytes_up"] == {"used": 1200, "printed": 2_500_000}
    assert (written["model"], written["data"], written["epsilon"], written["seed"]) == ("GFL", "DNC", None, 4)
    assert written["parts"]["aggregator"] == describe(SGC(3))
    assert written["parts"]["data"] == describe(DNC(60))


def test_any_part_can_be_written(tmp_path: Path) -> None:
    graph = random_clients("dnc")
    record = replace(FIT, parts={"data": Odd(graph=graph, values=graph.x)}).record()
    options = json.loads(write_summary(tmp_path, record).read_text())["parts"]["data"]["init_args"]
    assert options == {
        "file": "a/b",
        "graph": str(graph),
        "values": "Tensor",
        "inner": describe(SGC(2)),
        "bound": "inf",
    }


def test_the_screen_shows_every_part_by_its_class() -> None:
    shown = render(FIT.record(), Path("there"))
    lines = {line[:14].strip(): line[16:] for line in shown.splitlines()}
    assert lines["model"] == "GFL on DNC, seed 4"
    assert lines["data"].startswith("DNC(num_clients=60, num_features=100, degree=8, ")
    assert lines["aggregator"] == "SGC(k=3)"
    assert lines["rounds"] == "7 (70 updates, 1.2 s)"
    assert lines["test accuracy"] == ("75.00 % of samples; a client's own accuracy is 50.00 % on average (loss 0.6000)")
    assert (lines["sent up"], lines["sent down"]) == (
        "1.2 kB, the printed protocol 2.5 MB",
        "999 B, as the printed protocol",
    )
    assert lines["privacy"] == "no guarantee (no differential privacy)"
    assert "protection" not in lines
    assert lines["files"] == "there"
    stopped = render(replace(FIT, status="diverged", totals={}).record(), None)
    assert "1.2 s), diverged" in stopped
    assert "sent up  nothing" in stopped
    assert stopped.endswith("files  none written")


@pytest.mark.parametrize(
    ("part", "text"),
    [(SGC(3), "SGC(k=3)"), (0.1 + 0.2, "0.3"), (1.0, "1.0"), ([1, "a"], "[1, a]"), (Odd().inner, "SGC(k=2)")],
)
def test_parts_in_words(part: Any, text: str) -> None:
    assert part_text(part_record(part)) == text


def test_a_fit_without_test_samples_shows_no_score() -> None:
    nothing = replace(FIT, test=ClassMetrics(*[math.nan] * 4), baseline={"accuracy": math.nan, "log_loss": math.nan})
    shown = render(nothing.record(), None)
    assert "test score  not known, as no test sample gave a number" in shown
    assert "nan" not in shown
