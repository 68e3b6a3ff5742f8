"""Public ranges, categories and classes in place of statistics: tables of one's own under a finite ε."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from protected_fits import QUIET
from table_builders import clinics

from callbacks import DPSGD, DPNoise, PrivacyBudget
from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.losses.numbers import NumberLoss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.public import PublicColumns
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian

PUBLIC = PublicColumns(
    {"age": [0.0, 120.0], "marker": [0.0, 3.0]}, {"ward": ["A", "B", "C", "D"]}, ["ill", "well", "dead"]
)

NUMBERS = PublicColumns({"marker": [0.0, 3.0]}, PUBLIC.categories, labels=[0.0, 120.0])


def tables(folder: Path, split: bool = True, **options: Any) -> ClientTables:
    samples, edges = clinics()
    if split:
        samples["split"] = np.resize(["train", "train", "val", "test"], len(samples))
    samples.to_csv(folder / "samples.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return ClientTables(str(folder / "samples.csv"), str(folder / "edges.csv"), **{"task": "sc", **options})


def test_rows_are_encoded_by_what_is_public_alone(tmp_path: Path) -> None:
    """A row's features are a function of that row, whatever the others hold."""
    data = tables(tmp_path, public=PUBLIC, missing="indicator")
    samples, _ = clinics()
    x = data.graph.x.double()
    age, marker = (torch.tensor(samples[column].tolist(), dtype=torch.float64) for column in ("age", "marker"))
    gone = marker.isnan()
    assert torch.allclose(x[:, 0], (age - 60) / (120 / 12**0.5), atol=1e-6)
    assert torch.equal(x[:, 1], torch.zeros(len(x)).double())  # nothing of age is missing; the column is there
    assert torch.allclose(x[~gone, 2], (marker[~gone] - 1.5) / (3 / 12**0.5), atol=1e-6)
    assert torch.equal(x[gone, 2], torch.zeros(int(gone.sum())).double())
    assert torch.equal(x[:, 3].bool(), gone)
    assert x.shape[1] == 2 + 2 + 5
    assert x[:, 7].eq(0).all()  # ward D, which no row has
    assert data.names.classes == ("ill", "well", "dead")
    other = (tmp_path / "samples.csv").read_text().splitlines()
    cells = other[1].split(",")
    cells[2] = "119.0"
    (tmp_path / "samples.csv").write_text("\n".join([other[0], ",".join(cells), *other[2:]]) + "\n")
    assert torch.equal(replace(data).graph.x[1:].double(), x[1:])


def test_values_outside_their_range_count_as_its_ends(tmp_path: Path) -> None:
    """However far out, one row can neither end a protected fit nor stand out by more than the range allows."""
    data = tables(tmp_path, public=PUBLIC)
    rows = (tmp_path / "samples.csv").read_text().splitlines()
    far = []
    for value in ("120.0", "1e20", "0.0", "-1e20"):
        cells = rows[1].split(",")
        cells[2] = value
        (tmp_path / "samples.csv").write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]) + "\n")
        far.append(replace(data))
        assert far[-1].graph.num_samples == len(rows) - 1  # read now
    assert torch.equal(far[0].graph.x, far[1].graph.x)
    assert torch.equal(far[2].graph.x, far[3].graph.x)
    assert float(far[0].graph.x[0, 0]) == pytest.approx(3**0.5)
    told = fit(far[1]).privacy
    assert told is not None
    assert math.isfinite(told.epsilon)
    again = Encoding.from_state(far[1].network.encoding.state(), "ckpt_path")
    assert again == far[1].network.encoding


def fit(data: ClientTables, unit: Any = "sample") -> GFL:
    """Three rounds under bounds and noise on everything."""
    module = GFL(
        data.graph.num_features, data.graph.num_classes, MLP((4,)), local=LocalTraining(0.2, 2), estimator="v1"
    )
    private = [
        DPNoise(hidden=Gaussian(5.0, 1.0)),
        DPSGD(1.0, 10.0),
        PrivacyBudget(unit=unit),
    ]
    FederatedTrainer(max_steps=3, callbacks=private, **QUIET).fit(module, data)
    return module


def test_a_fit_on_tables_of_ones_own_has_a_finite_epsilon(tmp_path: Path) -> None:
    report = fit(tables(tmp_path, public=PUBLIC)).privacy
    assert report is not None
    assert report.gaps == ()
    assert 0 < report.epsilon < 3
    told = fit(tables(tmp_path)).privacy
    assert told is not None
    assert told.gaps == ("statistics of the tables (means, deviations, categories, classes)",)


def test_what_is_told_all_the_same_is_named(tmp_path: Path) -> None:
    drawn = "the split of the tables (drawn by their rows; name a column of it)"
    assert tables(tmp_path, split=False, public=PUBLIC).statistics == (drawn,)
    assert tables(tmp_path, public=PUBLIC, class_weights={"ill": 2.0, "well": 1.0, "dead": 1.0}).statistics == ()
    assert tables(tmp_path, public=PUBLIC, class_weights="balanced").statistics == ("class counts of the tables",)


@pytest.mark.parametrize(("loss", "scale"), [(SquaredError(), (60.0, 120 / math.sqrt(12))), (Poisson(), (0.0, 60.0))])
def test_numbers_of_a_public_range_are_learned_on_its_scale(loss: NumberLoss, scale: Any, tmp_path: Path) -> None:
    """Whatever the labels are; so nothing of them is told beside what protects them."""
    data = tables(tmp_path, public=NUMBERS, loss=loss, label="age")
    assert (data.graph.loss.centre, data.graph.loss.scale) == pytest.approx(scale)  # type: ignore[attr-defined]
    assert data.statistics == ()
    assert Encoding.from_state(data.network.encoding.state(), "encoding") == data.network.encoding


def test_a_label_that_is_no_public_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model knows no label 'well', only ill, dead"):
        tables(tmp_path, public=replace(PUBLIC, classes=["ill", "dead"])).graph  # noqa: B018


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            {"ranges": {"age": [120.0, 0.0]}},
            r"ranges.age must be two numbers, the smaller one first, got \[120.0, 0.0\]",
        ),
        ({"categories": {"ward": []}}, "categories.ward must be different values, at least one"),
        ({"categories": {"age": ["old"]}}, r"ranges and categories must share no column, got \['age'\]"),
        ({"classes": ["ill"]}, r"classes must be at least two different values, got \['ill'\]"),
        ({"labels": [0.0, 9.0]}, r"classes must be left out where labels are numbers of a range, got \['ill'"),
        ({"labels": [9.0, 0.0], "classes": []}, "labels must be two numbers, the smaller one first"),
        ({"ranges": {}, "categories": {}}, "public must name a range or categories of some column"),
    ],
)
def test_what_cannot_be_public_columns_is_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        replace(PUBLIC, **change)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"scaling": "per_client"}, "scaling must be shared or none where columns are public"),
        ({"loss": SquaredError()}, r"labels must be a range where the loss is one of numbers .*, got \[\]"),
        ({"public": NUMBERS}, r"labels must be a range where .* left out elsewhere, got \[0.0, 120.0\]"),
        ({"features": ["age"]}, r"features must be left out or be the columns that are public, got \['age'\]"),
        ({"encoding": "none.ckpt", "representations": "rows"}, "public must be left out where encoding names"),
    ],
)
def test_what_would_take_more_than_is_public_is_refused(options: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rule):
        tables(tmp_path, **{"public": PUBLIC} | options)
