"""The installed shape of the project."""

from __future__ import annotations

from pathlib import Path

import callbacks
import gfl_lightning


def test_callbacks_stands_beside_the_package_under_its_plain_name() -> None:
    assert Path(callbacks.__file__).parent.parent == Path(gfl_lightning.__file__).parent.parent
    assert callbacks.__name__ == "callbacks"
