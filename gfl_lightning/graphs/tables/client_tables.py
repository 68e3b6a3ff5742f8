"""Tables of one's own as a data set: a table of samples and a table of edges, CSV or Parquet."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from gfl_lightning.checks import require
from gfl_lightning.graphs.class_weights import ClassWeights, check_class_weights, weigh_classes
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.safe_loading import load_safely
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.network import Network, read_network
from gfl_lightning.graphs.tables.reading import require_table
from gfl_lightning.graphs.tables.settings import OPTIONAL_COLUMNS, MissingRule, Scaling, Settings, Task

STATE = "ClientGraphData"


class TableWarning(UserWarning):
    """What is allowed in tables but may not be meant.

    >>> str(TableWarning("the graph falls into 2 components"))
    'the graph falls into 2 components'
    """


@dataclass(frozen=True, eq=False)
class ClientTables(DataSet):
    r"""A network of clients from a table of samples and a table of edges, CSV or Parquet.

    Both are checked as a whole before anything is trained, and refused with a list of all mistakes. A checkpoint holds
    what its model must know to read other tables; options left out are then the ones it was trained with.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     samples, edges = f"{folder}/samples.csv", f"{folder}/edges.csv"
    ...     _ = Path(samples).write_text("client,age,label\n" + "a,30,ill\nb,40,well\n" * 5)
    ...     _ = Path(edges).write_text("one,other\na,b\n")
    ...     clinics = ClientTables(samples, edges, task="sc")
    ...     clinics.graph.num_samples, clinics.names.classes
    (10, ('ill', 'well'))

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

    samples: str
    edges: str
    task: Task | None = None
    client: str | None = None
    label: str | None = None
    split: str | None = None
    id: str | None = None
    features: list[str] | None = None
    numeric: list[str] | None = None
    categorical: list[str] | None = None
    scaling: Scaling | None = None
    missing: MissingRule | None = None
    missing_values: list[str] | None = None
    max_categories: int | None = None
    class_weights: ClassWeights = None
    fractions: list[float] | None = None
    seed: int | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    separator: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        require_table(self.samples, "samples")
        require_table(self.edges, "edges")
        check_class_weights(self.class_weights)
        self.settings  # noqa: B018  # refuses what it cannot take

    @cached_property
    def trained(self) -> Encoding | None:
        """What the model of the named checkpoint knows of tables."""
        return None if self.encoding is None else saved_encoding(self.encoding)

    @cached_property
    def settings(self) -> Settings:
        """The options with those that were left out: the trained model's, or the defaults."""
        given = {field.name: getattr(self, field.name) for field in fields(Settings)}
        return Settings.of(given, None if self.trained is None else self.trained.settings)

    @cached_property
    def network(self) -> Network:
        """The tables, read, checked, split and encoded."""
        named = [column for column in OPTIONAL_COLUMNS if getattr(self, column) is not None and self.trained is None]
        columns = EdgeColumns(self.source, self.target, self.weight)
        read = read_network(self.samples, self.edges, self.settings, named, columns, self.trained)
        for sentence in read.warnings:
            warnings.warn(sentence, TableWarning, stacklevel=2)
        return read

    def make(self) -> ClientGraph:
        """The graph of the tables, its samples weighted by their classes."""
        return weigh_classes(self.network.graph, self.class_weights, self.names.classes)

    @property
    def names(self) -> Names:
        """What the tables call their clients, samples and classes."""
        return self.network.names

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the tables: the encoding, and a fingerprint of the clients."""
        return {"encoding": self.network.encoding.state(), "clients": self._fingerprint}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a checkpoint whose model reads tables in another way."""
        saved = Encoding.from_state(state_dict.get("encoding"), "ckpt_path")
        own = self.network.encoding
        same = (saved.classes, saved.codes) == (own.classes, own.codes)
        require(same, "encoding", "name the checkpoint, as its model reads tables in another way", self.encoding)

    def require_clients(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of clients with other names or in another order."""
        same = state_dict.get("clients") == self._fingerprint
        require(same, "samples", "have the clients of the checkpoint, each with its model", self.samples)

    @property
    def _fingerprint(self) -> str:
        return hashlib.sha256(repr(list(self.names.clients)).encode()).hexdigest()


def saved_encoding(path: str) -> Encoding:
    """The encoding in a checkpoint, where its data set's state is kept under :data:`STATE`."""
    checkpoint = load_safely(path, "encoding", "a checkpoint of this program")
    saved = checkpoint.get(STATE) if isinstance(checkpoint, dict) else None
    state = saved.get("encoding") if isinstance(saved, dict) else None
    require(state is not None, "encoding", "be a checkpoint of a model trained on ClientTables", path)
    return Encoding.from_state(state, "encoding")
