"""The installed shape of the project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import callbacks
import gfl_lightning

ROOT = Path(__file__).parents[1]


def test_callbacks_stands_beside_the_package_under_its_plain_name() -> None:
    assert Path(callbacks.__file__).parent.parent == Path(gfl_lightning.__file__).parent.parent
    assert callbacks.__name__ == "callbacks"


def test_the_package_offers_what_most_programs_need_and_loads_it_when_asked() -> None:
    script = (
        "import sys, gfl_lightning; assert 'torch' not in sys.modules;"
        "from gfl_lightning import *; assert GFL.__module__ == 'gfl_lightning.lit.gfl'; print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "fine\n"
    for name in gfl_lightning.__all__:
        assert getattr(gfl_lightning, name).__name__ == name
    assert {"GFL", "DNC", "FederatedTrainer", "Federation"} <= set(gfl_lightning.__all__) <= set(dir(gfl_lightning))
    with pytest.raises(AttributeError, match="module 'gfl_lightning' has no attribute 'nothing'"):
        _ = gfl_lightning.nothing


def ignored(path: str) -> bool:
    asked = subprocess.run(["git", "check-ignore", "--no-index", "-q", path], cwd=ROOT, check=False)
    return asked.returncode == 0


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no git checkout")
def test_git_ignores_what_programs_write_and_nothing_that_people_do() -> None:
    for written in ("runs/gfl/version_0/summary.json", "data/planetoid/x", "wandb/x", "hospitals/x.csv", ".venv/bin/x"):
        assert ignored(written), written
    for authored in (
        "examples/hospitals/new.py",
        "gfl_lightning/data/x.py",
        "gfl_lightning/runs/x.py",
        "tests/wandb/test_x.py",
        "docs/build/x.md",
    ):
        assert not ignored(authored), authored
