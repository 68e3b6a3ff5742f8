"""Planetoid citation networks (Cora, CiteSeer, PubMed): every paper a client, the public split."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch_geometric import datasets
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data

from gfl_lightning.checks import InputError, require_choice
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.harmless_pickle import refusing, require_harmless_pickle

NAMES = ("Cora", "CiteSeer", "PubMed")
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
ROOT_VARIABLE = "GFL_PLANETOID_ROOT"


@dataclass(frozen=True)
class Planetoid(DataSet):
    """A whole citation network: every paper a client with one sample, raw features, 20 training clients per class.

    >>> Planetoid("PubMed", root="networks")
    Planetoid(name='PubMed', root='networks')

    Args:
        name: Cora, CiteSeer or PubMed.
        root: folder of the Planetoid files; none means $GFL_PLANETOID_ROOT, else data/planetoid.
    """

    files: ClassVar[tuple[str, ...]] = ("root",)
    name: str = "Cora"
    root: str | Path | None = None

    def __post_init__(self) -> None:
        require_choice("name", self.name, NAMES)

    def make(self) -> ClientGraph:
        """The network with its public split."""
        return ClientGraph.from_data(read_planetoid(self.name, self.root))


def default_root() -> Path:
    """The folder in the environment variable ``GFL_PLANETOID_ROOT``, else ``data/planetoid``."""
    return Path(os.environ.get(ROOT_VARIABLE, "data/planetoid"))


def read_planetoid(name: str, root: str | Path | None = None) -> Data:
    """PyG's ``Data`` of the raw files in ``root/name/raw``, which are downloaded where they are missing."""
    require_choice("name", name, NAMES)
    root = default_root() if root is None else Path(root)
    raw = root / name / "raw"
    if not all((raw / file).is_file() for file in raw_files(name)):
        _download(name, raw)
    for file in raw_files(name)[:-1]:
        require_harmless_pickle(raw / file, "root")
    with refusing(str(raw)):
        return read_planetoid_data(str(raw), name.lower())


def raw_files(name: str) -> list[str]:
    """Names of the raw files of a data set."""
    return [f"ind.{name.lower()}.{part}" for part in PARTS]


def _download(name: str, raw: Path) -> None:
    """Fetch through PyG into a temporary folder, so that ``raw`` is either complete or untouched."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            fetched = Path(datasets.Planetoid(scratch, name).raw_dir)
        except Exception as reason:
            raise InputError(
                f"root must hold the files {', '.join(raw_files(name))} in {raw}, or the network must allow their "
                f"download, got neither ({type(reason).__name__})."
            ) from reason
        shutil.copytree(fetched, raw, dirs_exist_ok=True)
