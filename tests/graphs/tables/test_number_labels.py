"""Labels that are numbers: read as they stand, split, scaled and kept with the model; refused where they look wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from table_builders import clinics

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.graphs.tables.client_tables import ClientTables, TableWarning
from gfl_lightning.graphs.tables.encoding import Encoding


def written(folder: Path, task: str = "sc", ending: str = "csv", **changes: Any) -> tuple[str, str]:
    samples, edges = clinics(task=task)
    draw = np.random.default_rng(0)
    label = draw.poisson(5, len(samples)) + samples["age"].round(1)
    if task != "sc":
        label = samples["client"].map({name: 1.5 * i for i, name in enumerate(sorted(set(samples["client"])))})
    samples = samples.assign(label=label, **changes)
    files = [str(folder / f"{name}.{ending}") for name in ("samples", "edges")]
    for frame, file in zip((samples, edges), files, strict=True):
        frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file, index=False)
    return files[0], files[1]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("loss", [SquaredError(), Huber(delta=2.0), Poisson()], ids=lambda loss: type(loss).__name__)
def test_numbers_stay_as_they_are_and_the_loss_takes_their_scale(tmp_path: Path, loss: Loss, ending: str) -> None:
    samples, edges = written(tmp_path, ending=ending)
    data = ClientTables(samples, edges, task="sc", loss=loss)
    graph = data.graph
    frame = pd.read_csv(samples) if ending == "csv" else pd.read_parquet(samples)
    assert graph.y.tolist() == frame["label"].tolist()
    assert graph.num_classes == 1
    assert list(data.names.classes) == ["label"]
    trained = graph.y[graph.mask(Split.TRAIN)]
    assert graph.loss == loss.fitted(trained)
    assert float(graph.loss.link(torch.zeros(1, 1, dtype=torch.float64))) == pytest.approx(float(trained.mean()))
    for part in (Split.TRAIN, Split.VAL, Split.TEST):
        assert bool(graph.mask(part).any())
    assert Encoding.from_state(data.network.encoding.state(), "state") == data.network.encoding


@pytest.mark.parametrize("task", ["snc", "dnc"])
@pytest.mark.filterwarnings("ignore::gfl_lightning.graphs.tables.client_tables.TableWarning")
def test_clients_may_have_a_number_each(tmp_path: Path, task: Any) -> None:
    samples, edges = written(tmp_path, task)
    graph = ClientTables(samples, edges, task=task, loss=SquaredError()).graph
    assert len(graph.y.unique()) == graph.num_clients
    assert len(graph.training_clients) < graph.num_clients


def test_missing_numbers_are_unknown(tmp_path: Path) -> None:
    samples, edges = written(tmp_path)
    frame = pd.read_csv(samples)
    frame.loc[[1, 5], "label"] = np.nan
    frame.to_csv(samples, index=False)
    graph = ClientTables(samples, edges, task="sc", loss=SquaredError()).graph
    assert graph.y.isnan().nonzero().flatten().tolist() == [1, 5]
    assert graph.split[[1, 5]].tolist() == [int(Split.NONE)] * 2


def refused(samples: str, edges: str, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        ClientTables(samples, edges, **{"task": "sc"} | options).graph  # noqa: B018
    return str(caught.value)


def test_columns_of_many_numbers_are_no_classes(tmp_path: Path) -> None:
    samples, edges = written(tmp_path)
    kinds = len(set(pd.read_csv(samples)["label"]))
    said = refused(samples, edges)
    assert f"samples.csv column 'label': {kinds} different numbers are too many for classes" in said
    assert "for regression say loss: SquaredError (or Huber, or Poisson for counts)" in said
    many, edges = written(tmp_path, years=0)
    frame = pd.read_csv(many)
    frame.assign(label=range(len(frame))).to_csv(many, index=False)
    assert "144 different numbers are too many for classes" in refused(many, edges)
    for few in (frame.index % 10, "g" + (frame.index % 120).astype(str)):
        frame.assign(label=few).to_csv(many, index=False)
        assert ClientTables(many, edges, task="sc").graph.loss == CrossEntropy()
    frame.assign(label=frame.index % 30).to_csv(many, index=False)
    with pytest.warns(TableWarning, match="column 'label': 30 different numbers are taken as classes, in no order"):
        assert ClientTables(many, edges, task="sc").graph.loss == CrossEntropy()


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    samples, edges = written(tmp_path)
    frame = pd.read_csv(samples, dtype={"label": str})
    frame.loc[2, "label"] = "high"
    frame.loc[3, "label"] = "inf"
    frame.to_csv(samples, index=False)
    said = refused(samples, edges, loss=SquaredError())
    assert (
        "line 4, column 'label': a label must be a finite number where the loss is one of numbers, got 'high'" in said
    )
    assert "line 5" in said
    frame.assign(label=3).to_csv(samples, index=False)
    assert "labels must be at least two different numbers, got 1" in refused(samples, edges, loss=SquaredError())
    frame.assign(label=frame.index, split="train").to_csv(samples, index=False)
    assert "no row has split val, which picks the best round" in refused(samples, edges, loss=SquaredError())
    frame.assign(label=frame.index - 5).to_csv(samples, index=False)
    assert "y must be at least 0 for Poisson" in refused(samples, edges, loss=Poisson())
    said = refused(samples, edges, loss=SquaredError(), class_weights="balanced")
    assert said == "class_weights must be left out where labels are numbers, got 'balanced'."
    clients, edges = written(tmp_path, "snc")
    frame = pd.read_csv(clients)
    frame.loc[1, "label"] += 1
    frame.to_csv(clients, index=False)
    assert "its rows must agree" in refused(clients, edges, task="snc", loss=SquaredError())


def test_tables_are_split_anew_unless_they_say_how(tmp_path: Path) -> None:
    samples, edges = written(tmp_path)
    data = ClientTables(samples, edges, task="sc", loss=SquaredError())
    other = data.repeated(1)
    assert not torch.equal(data.graph.split, other.graph.split)
    assert torch.equal(data.graph.y, other.graph.y)
    assert data.repeated(0) is data
    frame = pd.read_csv(samples).assign(split=["train", "val", "test"] * 48)
    frame.to_csv(samples, index=False)
    said = ClientTables(samples, edges, task="sc", loss=SquaredError())
    assert said.repeated(1) is said
