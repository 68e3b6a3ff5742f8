"""The installed shape of the project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import callbacks
import gfl_lightning


def test_callbacks_stands_beside_the_package_under_its_plain_name() -> None:
    assert Path(callbacks.__file__).parent.parent == Path(gfl_lightning.__file__).parent.parent
    assert callbacks.__name__ == "callbacks"


def test_main_prints_the_data_sets_summary(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gfl_lightning"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "ClientGraph(200 clients" in done.stdout
    assert not list(tmp_path.iterdir())
