"""Planetoid's raw files are pickles: they are read only if they hold arrays and nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.datasets.harmless_pickle import require_harmless_pickle
from gfl_lightning.graphs.datasets.planetoid import Planetoid, raw_files


class Malicious:
    def __init__(self, owned: Path) -> None:
        self.owned = owned

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.owned,)


def test_a_pickle_with_code_is_refused_before_it_runs(tmp_path: Path) -> None:
    owned, raw = tmp_path / "owned", tmp_path / "Cora" / "raw"
    raw.mkdir(parents=True)
    for name in raw_files("Cora"):
        (raw / name).write_bytes(pickle.dumps(Malicious(owned), protocol=2))
    with pytest.raises(InputError, match=r"root must hold the raw files of Planetoid, got '.*ind.cora.x' \(Unpickling"):
        _ = Planetoid("Cora", tmp_path).graph
    assert not owned.exists()
    pickle.loads((raw / "ind.cora.x").read_bytes())
    assert owned.exists()  # so the file would do harm


def test_arrays_and_broken_files(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(pickle.dumps({"a": [1, 2], "b": np.arange(3)}, protocol=2))
    require_harmless_pickle(file, "root")
    for blob in (b"", b"junk", file.read_bytes()[:-5]):
        file.write_bytes(blob)
        with pytest.raises(InputError, match="root must hold the raw files of Planetoid"):
            require_harmless_pickle(file, "root")


def test_the_public_files_are_harmless(planetoid_root: Path) -> None:
    for name in raw_files("Cora")[:-1]:
        require_harmless_pickle(planetoid_root / "Cora" / "raw" / name, "root")
