"""Finished cells: whole files, other code noticed, broken files made anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gfl_lightning.studies import fingerprint as module
from gfl_lightning.studies.cell import Cell, DataSet, Method
from gfl_lightning.studies.store import Store

CELL = Cell(DataSet("dnc"), Method("gfl", 100, 0.5, 10), 0)
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
        Cell(DataSet("snc"), CELL.method, 0),
        Cell(DataSet("dnc", (("graph_seed", 1),)), CELL.method, 0),
        Cell(CELL.data, Method("gfl", 100, 0.5, 20), 0),
        Cell(CELL.data, CELL.method, 1),
    ]
    assert store.load(others) == ({}, 0)
    assert len({cell.key for cell in (CELL, *others)}) == 5


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


def fresh(kind: str, probed: bool = False) -> str:
    return module.fingerprint.__wrapped__(kind, probed)


def test_code_counts_and_comments_do_not(package: Path) -> None:
    before = fresh("gfl")
    file = package / "federated" / "local.py"
    source = file.read_text()
    file.write_text(source.replace('"""Step 4', '"""Reworded: step 4').replace("import math", "import math  # why"))
    assert fresh("gfl") == before
    file.write_text(source + "\n\nMORE = 1\n")
    assert fresh("gfl") != before


def test_only_code_that_matters_counts(package: Path) -> None:
    before = {"gfl": fresh("gfl"), "central": fresh("central"), "probed": fresh("gfl", True)}
    for room in ("studies/page.py", "lit/figures.py"):
        (package / room).write_text("CHANGED = 1\n")
    assert before == {"gfl": fresh("gfl"), "central": fresh("central"), "probed": fresh("gfl", True)}
    (package / "baselines" / "central.py").write_text("CHANGED = 1\n")
    assert fresh("central") != before["central"]
    assert fresh("gfl") == before["gfl"]
    (package / "theory" / "staleness.py").write_text("CHANGED = 1\n")
    assert fresh("gfl", True) != before["probed"]
    assert fresh("gfl") == before["gfl"]


def test_a_library_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fresh("gfl")
    monkeypatch.setattr(module, "version", lambda name: "0.0")
    assert fresh("gfl") != before
