"""Planetoid's raw files are pickles: they are read only if they hold arrays and nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

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


def of_objects() -> bytes:
    """An array of addresses in memory that says it is one of Python's objects."""
    return pickle.dumps(np.arange(3), protocol=2).replace(b"X\x02\x00\x00\x00i8", b"X\x02\x00\x00\x00O8")


def with_entries_outside() -> bytes:
    matrix = csr_matrix(np.eye(3))
    matrix.indices = matrix.indices + 10**6
    return pickle.dumps(matrix, protocol=2)


CHANGED_CLASS = b"\x80\x02cscipy.sparse._csr\ncsr_matrix\nN}X\x07\x00\x00\x00todenseK\x01s\x86b."
FIELDS = pickle.dumps(np.zeros(2, dtype=[("a", "f4")]), protocol=2)


@pytest.mark.parametrize("blob", [of_objects(), with_entries_outside(), CHANGED_CLASS, FIELDS])
def test_what_reaches_beyond_its_arrays_is_refused(blob: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(blob)
    with pytest.raises(InputError, match=r"root must hold the raw files of Planetoid, got .* \(.*\)\.$"):
        require_harmless_pickle(tmp_path / "x", "root")
    assert callable(csr_matrix.todense)


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_of_every_protocol(protocol: int, tmp_path: Path) -> None:
    for value in (csr_matrix(np.eye(3, dtype=np.float32)), np.zeros((2, 3), dtype=np.int32), {0: [1], 1: [0]}):
        (tmp_path / "x").write_bytes(pickle.dumps(value, protocol=protocol))
        require_harmless_pickle(tmp_path / "x", "root")


def test_the_public_files_are_harmless(planetoid_root: Path) -> None:
    for name in raw_files("Cora")[:-1]:
        require_harmless_pickle(planetoid_root / "Cora" / "raw" / name, "root")
