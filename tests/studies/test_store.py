"""Finished cells: whole files, other code noticed, broken files made anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gfl_lightning.studies import fingerprint as module
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.store import Store

CELL = Cell(Experiment.read("paper/dnc_synthetic"), 0)
RECORD = {"accuracy": 0.5, "seconds": 1.0}


def test_what_is_kept_is_loaded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.load([CELL]) == ({}, 0)
    store.keep(CELL, RECORD)
    assert store.load([CELL]) == ({CELL: RECORD}, 0)
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]


def test_other_parameters_are_another_cell(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(CELL, RECORD)
    others = [
        Cell(CELL.experiment.on(Experiment.read("paper/snc_synthetic")), 0),
        Cell(CELL.experiment.changed(data={"graph_seed": 1}), 0),
        Cell(CELL.experiment.changed(model={"local": {"steps": 20}}), 0),
        Cell(CELL.experiment.changed(rounds=1), 0),
        Cell(CELL.experiment, 1),
        Cell(CELL.experiment, 0, probes=1),
    ]
    assert store.load(others) == ({}, 0)
    assert len({cell.key for cell in (CELL, *others)}) == 7


@pytest.mark.parametrize("content", ["", "{", "[]", '{"record": {}}', "null"])
def test_a_broken_file_is_no_record(tmp_path: Path, content: str) -> None:
    store = Store(tmp_path)
    store.keep(CELL, RECORD)
    (tmp_path / f"{CELL.key}.json").write_text(content)
    assert store.load([CELL]) == ({}, 0)


def test_a_record_of_other_code_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(CELL, RECORD)
    file = tmp_path / f"{CELL.key}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fingerprint": "of other code"}))
    assert store.load([CELL]) == ({}, 1)


def test_no_number_that_json_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Store(tmp_path).keep(CELL, {"accuracy": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package whose sources a test may change."""
    copy = tmp_path / "gfl_lightning"
    shutil.copytree(module.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "PACKAGE", copy)
    return copy


def fresh(model: str, probed: bool = False) -> str:
    return module.fingerprint.__wrapped__(model, probed)


def test_code_counts_and_comments_do_not(package: Path) -> None:
    before = fresh("GFL")
    file = package / "federated" / "local" / "general.py"
    source = file.read_text()
    reworded = source.replace('"""The general path', '"""Reworded: the general path')
    assert reworded != source
    file.write_text(reworded.replace("import math", "import math  # why"))
    assert fresh("GFL") == before
    file.write_text(source + "\n\nMORE = 1\n")
    assert fresh("GFL") != before


def test_only_code_that_matters_counts(package: Path) -> None:
    before = {"gfl": fresh("GFL"), "central": fresh("Central"), "probed": fresh("GFL", True)}
    for room in ("studies/page.py", "reports/figures.py", "lit/rounds.py"):
        (package / room).write_text("CHANGED = 1\n")
    assert before == {"gfl": fresh("GFL"), "central": fresh("Central"), "probed": fresh("GFL", True)}
    (package / "baselines" / "central.py").write_text("CHANGED = 1\n")
    assert fresh("Central") != before["central"]
    assert fresh("GFL") == before["gfl"]
    (package / "theory" / "staleness.py").write_text("CHANGED = 1\n")
    assert fresh("GFL", True) != before["probed"]
    assert fresh("GFL") == before["gfl"]


def test_a_library_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fresh("GFL")
    monkeypatch.setattr(module, "version", lambda name: "0.0")
    assert fresh("GFL") != before
