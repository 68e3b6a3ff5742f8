"""Planetoid citation networks (Cora, CiteSeer, PubMed): every paper a client, the public split."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.io import read_planetoid_data

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.client_graph import ClientGraph

NAMES = ("Cora", "CiteSeer", "PubMed")
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
ROOT_VARIABLE = "GFL_PLANETOID_ROOT"


def default_root() -> Path:
    """The folder in the environment variable ``GFL_PLANETOID_ROOT``, else ``data/planetoid``."""
    return Path(os.environ.get(ROOT_VARIABLE, "data/planetoid"))


def planetoid(name: str = "Cora", root: str | Path | None = None) -> ClientGraph:
    """Every node a client with one sample, raw features, public split (20 training clients per class)."""
    return ClientGraph.from_data(read_planetoid(name, root))


def read_planetoid(name: str, root: str | Path | None = None) -> Data:
    """PyG's ``Data`` of the raw files in ``root/name/raw``, which are downloaded where they are missing."""
    require(name in NAMES, "name", f"be one of {', '.join(NAMES)}", name)
    root = default_root() if root is None else Path(root)
    raw = root / name / "raw"
    if not all((raw / file).is_file() for file in raw_files(name)):
        _download(name, raw)
    return read_planetoid_data(str(raw), name.lower())


def raw_files(name: str) -> list[str]:
    """Names of the raw files of a data set."""
    return [f"ind.{name.lower()}.{part}" for part in PARTS]


def _download(name: str, raw: Path) -> None:
    """Fetch through PyG into a temporary folder, so that ``raw`` is either complete or untouched."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            fetched = Path(Planetoid(scratch, name).raw_dir)
        except Exception as reason:
            raise InputError(
                f"root must hold the files {', '.join(raw_files(name))} in {raw}, or the network must allow their "
                f"download, got neither ({type(reason).__name__})."
            ) from reason
        shutil.copytree(fetched, raw, dirs_exist_ok=True)
