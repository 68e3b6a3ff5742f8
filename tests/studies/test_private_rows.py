"""Studies of privacy: what is chosen sees randomised labels alone, and the page says what was run."""

from __future__ import annotations

from typing import Any

import pytest

from gfl_lightning.graphs.losses.forward_corrected import ForwardCorrected
from gfl_lightning.studies import private_page
from gfl_lightning.studies.catalogue import shrunk
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.outcome import Outcome
from gfl_lightning.studies.private_rows import ONCE, privacy, samples, settings
from gfl_lightning.studies.training import run_cell


def outcome(study: str, rows: list[Row], **record: Any) -> Outcome:
    """An outcome whose cells all have the same record."""
    cells = [cell for row in rows for cell in row.cells]
    records = {cell: {"accuracy": 0.5, "seconds": 1.0} | record for cell in cells}
    return Outcome({study: rows}, records, "reproduce", quick=False)


def test_no_setting_is_chosen_by_test_accuracy() -> None:
    rows = settings(3)
    pages = [
        private_page.settings(outcome("settings", rows, accuracy=accuracy, val_accuracy=0.4)) for accuracy in (0.1, 0.9)
    ]
    assert pages[0] == pages[1]
    other = private_page.settings(outcome("settings", rows, accuracy=0.1, val_accuracy=0.6))
    assert "60.0" in other
    assert other != pages[0]


def test_settings_are_compared_on_the_same_networks() -> None:
    """Five per cent more in every repetition, whatever the networks differ by: the interval is of the difference."""
    rows = settings(3)
    records = {
        cell: {"accuracy": 0.5, "val_accuracy": 0.3 + 0.1 * cell.repetition + 0.05 * (row.label == "dimensions 64")}
        for row in rows
        for cell in row.cells
    }
    page = private_page.settings(Outcome({"settings": rows}, records, "reproduce", quick=False))
    assert "| dimensions 64 | 45.0 ± 24.84 | 5.0 ± 0.00 |" in page
    assert "| as configured | 40.0 ± 24.84 |  |" in page


def test_settings_are_tried_on_synthetic_data_alone() -> None:
    assert {row.experiment.data for row in settings(3)} == {"Citations", "SC"}


def test_cora_is_randomised_ten_times_at_every_epsilon_as_configured() -> None:
    rows = [row for row in privacy(20) if row.label == ONCE and row.column.startswith("Cora")]
    assert [row.experiment.epsilon for row in rows] == [1, 2, 4, 8, None]
    assert {row.repetitions for row in rows} == {10}
    assert rows[3].experiment == Experiment.read("private/randomise_cora")


@pytest.mark.parametrize("study", [privacy, samples])
def test_tables_and_figures_hold_every_row(study: Any) -> None:
    rows = study(2)
    made = outcome(study.__name__, rows, accuracy=0.625)
    tables = {privacy: private_page.clients, samples: private_page.samples}
    text = tables[study](made)
    assert text.count("62.5 ± 0.00") == len(rows)
    (picture,) = {privacy: private_page.clients_pictures, samples: private_page.samples_pictures}[study](made)
    assert picture.name == study.__name__
    assert len(picture.figure.axes) == len({row.column.partition(", ")[0] for row in rows})


@pytest.mark.parametrize("row", [*samples(1)[3:5], *samples(1)[-2:], *settings(1)[:1]], ids=lambda row: row.label)
def test_a_small_version_of_a_row_runs(row: Row, request: pytest.FixtureRequest) -> None:
    if row.experiment.needs_cora:
        request.getfixturevalue("planetoid_root")
    record = run_cell(shrunk(row).cells[0])
    assert record["accuracy"] is not None
    assert ("val_accuracy" in record) == (
        row.experiment.epsilon is not None and "records" in row.experiment.model_options
    )


def test_accuracy_by_true_labels_is_read_off_that_by_answers() -> None:
    """Answers that are all drawn at random agree by chance; true ones agree as often as they are not replaced."""
    loss = ForwardCorrected(flip=0.3)
    assert loss.of_truth(0.3 / 7, 7) == pytest.approx(0)
    assert loss.of_truth(0.7 + 0.3 / 7, 7) == pytest.approx(1)
