"""Fixtures shared by all rooms."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gfl_lightning.graphs.datasets.planetoid import default_root, raw_files

torch.set_num_threads(1)  # the tensors of tests are small, and threads only wait for each other


@pytest.fixture(scope="session")
def planetoid_root() -> Path:
    """A folder with Cora's raw files; tests never download."""
    root = default_root()
    if not all((root / "Cora" / "raw" / file).is_file() for file in raw_files("Cora")):
        pytest.skip(f"Cora's raw files are not in {root} (set GFL_PLANETOID_ROOT)")
    return root
