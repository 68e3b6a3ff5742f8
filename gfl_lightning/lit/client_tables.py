"""Data modules for data of one's own: tables of samples and edges, and saved PyG graphs."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.class_weights import ClassWeights, weigh_classes
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.network import Network, read_network
from gfl_lightning.graphs.tables.settings import OPTIONAL_COLUMNS, MissingRule, Scaling, Settings, Task
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.local_mlps import LocalMLPs

PYG_GLOBALS = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


class TableWarning(UserWarning):
    """What is allowed in tables but may not be meant."""


class ClientTables(ClientGraphData):
    """A network of clients from a table of samples and a table of edges, CSV or Parquet.

    Both are checked as a whole before anything is trained, and refused with a list of all mistakes. A checkpoint holds
    what its model must know to read other tables; options left out are then the ones it was trained with.

    Args:
        samples: file with a row per sample: client, features and, where they are known, label, split and id.
        edges: file with a row per edge: two client ids and possibly a weight.
        task: ``dnc`` (one row per client), ``snc`` (one label per client) or ``sc`` (each row has its own label).
        client: column of client ids; by default ``client``.
        label: column of labels; by default ``label``.
        split: column of train, val, test or none; by default ``split`` if there is one, else the split is drawn.
        id: column of sample ids; by default ``id`` if there is one, else samples are numbered.
        features: feature columns; by default all others.
        numeric: features that must be numbers.
        categorical: features that are categories even if they are numbers; text always is.
        scaling: ``shared`` statistics of the training rows (default), ``per_client`` or ``none``.
        missing: ``fill`` with the mean (default), add an ``indicator`` column too, or ``refuse``.
        missing_values: cells of features and labels that are missing; by default empty, NA, NaN, nan and null.
        max_categories: most categories that a feature may have; by default 100.
        class_weights: of the loss: ``balanced``, or a weight for each label; by default all are 1.
        fractions: train, val and test where there is no split column; by default 0.6, 0.2, 0.2.
        seed: of that split; by default 0.
        source: column of one end of an edge; by default the first.
        target: column of the other end; by default the second.
        weight: column of edge weights; by default ``weight`` if there is one.
        separator: of the cells of CSV files; by default a comma.
        encoding: checkpoint whose classes and features to use; on the command line ckpt_path.
    """

    def __init__(
        self,
        samples: str,
        edges: str,
        task: Task | None = None,
        client: str | None = None,
        label: str | None = None,
        split: str | None = None,
        id: str | None = None,
        features: list[str] | None = None,
        numeric: list[str] | None = None,
        categorical: list[str] | None = None,
        scaling: Scaling | None = None,
        missing: MissingRule | None = None,
        missing_values: list[str] | None = None,
        max_categories: int | None = None,
        class_weights: ClassWeights = None,
        fractions: list[float] | None = None,
        seed: int | None = None,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        separator: str | None = None,
        encoding: str | None = None,
    ) -> None:
        super().__init__(self._weighed)
        given = {
            "task": task,
            "client": client,
            "label": label,
            "split": split,
            "id": id,
            "features": features,
            "numeric": numeric,
            "categorical": categorical,
            "scaling": scaling,
            "missing": missing,
            "missing_values": missing_values,
            "max_categories": max_categories,
            "fractions": fractions,
            "seed": seed,
            "separator": separator,
        }
        self._files = (samples, edges)
        self._trained = None if encoding is None else saved_encoding(encoding)
        self.settings = Settings.of(given, None if self._trained is None else self._trained.settings)
        self._named = [column for column in OPTIONAL_COLUMNS if given[column] is not None and self._trained is None]
        self._edge_columns = EdgeColumns(source, target, weight)
        self._class_weights = class_weights

    @cached_property
    def network(self) -> Network:
        """The tables, read, checked, split and encoded."""
        read = read_network(*self._files, self.settings, self._named, self._edge_columns, self._trained)
        for sentence in read.warnings:
            warnings.warn(sentence, TableWarning, stacklevel=2)
        return read

    @property
    def names(self) -> Names:
        """What the tables call their clients, samples and classes."""
        return self.network.names

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the tables: the encoding, and a fingerprint of the clients."""
        return {"encoding": self.network.encoding.state(), "clients": self._fingerprint}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse a checkpoint whose model reads tables in another way."""
        saved = Encoding.from_state(state_dict.get("encoding"), "ckpt_path")
        own = self.network.encoding
        same = (saved.classes, saved.codes) == (own.classes, own.codes)
        require(same, "encoding", "name the checkpoint, as its model reads tables in another way", self._trained)
        module = None if self.trainer is None else self.trainer.lightning_module
        if isinstance(module, LocalMLPs):
            same = state_dict.get("clients") == self._fingerprint
            require(same, "samples", "have the clients of the checkpoint, each with its model", self._files[0])

    @property
    def _fingerprint(self) -> str:
        return hashlib.sha256(repr(list(self.names.clients)).encode()).hexdigest()

    def _weighed(self) -> ClientGraph:
        return weigh_classes(self.network.graph, self._class_weights, self.names.classes)


class ClientGraphFile(ClientGraphData):
    """A client graph from a PyG ``Data`` that ``torch.save`` wrote.

    It needs ``x``, ``y``, ``edge_index`` and one of ``train_mask``, ``val_mask``, ``test_mask``. Nodes are clients with
    one sample each, unless ``client`` gives the owner of each row of ``x``. The file is loaded without running code.

    Args:
        path: the .pt file.
        class_weights: of the loss: ``balanced``, or a weight for each class by its number; by default all are 1.
    """

    def __init__(self, path: str, class_weights: ClassWeights = None) -> None:
        super().__init__(self._read)
        self._path = path
        self._class_weights = class_weights

    def _read(self) -> ClientGraph:
        require(Path(self._path).is_file(), "path", "name a file", self._path)
        with torch.serialization.safe_globals(PYG_GLOBALS):
            data = _load(self._path, "path", "a PyG Data of tensors")
        require(
            isinstance(data, Data), "path", "be a PyG Data of tensors", f"{self._path!r} with {type(data).__name__}"
        )
        graph = ClientGraph.from_data(data)
        return weigh_classes(graph, self._class_weights, range(graph.num_classes))


def saved_encoding(path: str) -> Encoding:
    """The encoding in a checkpoint."""
    require(Path(path).is_file(), "encoding", "name a checkpoint file", path)
    checkpoint = _load(path, "encoding", "a checkpoint of this program")
    saved = checkpoint.get(ClientTables.__qualname__) if isinstance(checkpoint, dict) else None
    require(isinstance(saved, dict), "encoding", "be a checkpoint of a model trained on ClientTables", path)
    assert isinstance(saved, dict)
    return Encoding.from_state(saved.get("encoding"), "encoding")


def _load(path: str, argument: str, what: str) -> Any:
    """A file that ``torch.save`` wrote, without running any code that it may hold."""
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as unreadable:
        raise InputError(f"{argument} must be {what}, got {path!r} ({type(unreadable).__name__}).") from unreadable
