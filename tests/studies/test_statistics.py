"""Intervals against scipy, the rule of agreement, and what counts as published."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gfl_lightning.studies.catalogue import STUDIES
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.outcome import agreement, published
from gfl_lightning.studies.published import NOISE, SUMMARY, Published
from gfl_lightning.studies.statistics import Estimate, band, estimate


@pytest.mark.parametrize("n", [2, 5, 20])
def test_interval_is_students(n: int) -> None:
    values = np.random.default_rng(n).normal(3, 2, n)
    found = estimate(values.tolist())
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert found.mean == pytest.approx(values.mean())
    assert (found.mean - found.half_width, found.mean + found.half_width) == (pytest.approx(low), pytest.approx(high))
    assert found.n == n


def test_band_is_the_interval_of_each_point() -> None:
    values = np.random.default_rng(0).normal(size=(6, 4))
    mean, half = band(values)
    for column in range(4):
        one = estimate(values[:, column].tolist())
        assert (mean[column], half[column]) == (pytest.approx(one.mean), pytest.approx(one.half_width))


def test_one_value_has_no_known_width() -> None:
    found = estimate([2.0])
    assert found.mean == 2
    assert math.isnan(found.half_width)
    assert found.overlaps(2.5, 0.5)
    assert not found.overlaps(2.6, 0.5)


@pytest.mark.parametrize(
    ("mean", "half", "expected"), [(91.0, 0.5, "no"), (91.6, 0.5, "yes"), (92.5, 0.5, "yes"), (93.6, 0.5, "no")]
)
def test_cells_agree_if_their_intervals_meet(mean: float, half: float, expected: str) -> None:
    assert agreement(Estimate(mean, half, 20), Published(92.5, 0.45)) == expected


def test_misprints_and_missing_cells_are_not_judged() -> None:
    assert agreement(Estimate(95, 1, 20), Published(98.7, 0.26, erratum=6)) == "misprint"
    assert agreement(None, Published(1, 1)) == agreement(Estimate(1, 1, 2), None) == "—"
    assert {key for key, cell in SUMMARY.items() if cell.erratum} == {
        ("GFL-APPNP I=1", "Synthetic SNC"),
        ("FedMLP I=50", "Synthetic SC"),
    }


def test_every_published_cell_has_a_row() -> None:
    rows = [row for study in ("dnc", "snc", "sc") for row in STUDIES[study](20)]
    assert {(row.label, row.column) for row in rows} >= set(SUMMARY)
    assert {(row.label, row.column) for row in STUDIES["dp"](20)} == set(NOISE)
    assert all(published("dp", row) is not None for row in STUDIES["dp"](20))


def _training(experiment: Experiment) -> tuple[int, float, int | None]:
    return experiment.updates, experiment.lr, experiment.batch_size


def test_set_ups_are_the_papers() -> None:
    found = {
        (row.label, row.column): (*_training(row.experiment), row.repetitions)
        for study in ("dnc", "snc", "sc", "connectivity", "dp")
        for row in STUDIES[study](20)
    }
    expected = {
        ("GFL-APPNP I=50", "Synthetic DNC"): (3000, 0.5, None, 20),
        ("GFL-APPNP I=1", "SubCora DNC"): (4000, 0.02, None, 20),
        ("GFL-APPNP I=20", "Synthetic SNC"): (5000, 0.2, None, 20),
        ("GFL-APPNP-V1 I=10", "Synthetic SNC"): (8000, 0.6, None, 20),
        ("GFL-APPNP-V1 I=10", "Synthetic SC"): (2000, 0.2, 5, 20),
        ("GraphSAGE", "Synthetic DNC"): (5000, 0.02, None, 20),
        ("GraphSAGE", "SubCora DNC"): (4000, 0.01, None, 20),
        ("GAT", "Synthetic DNC"): (4000, 0.02, None, 20),
        ("GCN", "SubCora DNC"): (4000, 0.01, None, 20),
        ("FedMLP I=50", "Synthetic SC"): (2000, 0.1, 5, 20),
        ("MLPs", "Synthetic SC"): (200, 0.1, 5, 20),
        ("GFL-APPNP I=10", "degree 25"): (1500, 0.5, 5, 20),
        ("I=20 hn_gn", "SD 0.75"): (4000, 0.01, None, 20),
    }
    assert {key: found[key] for key in expected} == expected
