"""Tables of one's own as a data set: a table of samples and a table of edges, CSV or Parquet."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from gfl_lightning.checks import require
from gfl_lightning.graphs.class_weights import ClassWeights, check_class_weights, weigh_classes
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.huber import Huber
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.kept import KeptNetwork
from gfl_lightning.graphs.tables.neighbours import Distance, NeighbourRule
from gfl_lightning.graphs.tables.network import Network, read_network
from gfl_lightning.graphs.tables.public import PublicColumns
from gfl_lightning.graphs.tables.reading import require_table
from gfl_lightning.graphs.tables.settings import OPTIONAL_COLUMNS, MissingRule, Scaling, Settings, Task
from gfl_lightning.sealed_files import read_sealed

STATE = "ClientGraphData"
LOSSES = (CrossEntropy, SquaredError, Huber, Poisson)  # for checkpoints and short names
Representations = Literal["kept", "rows"]


class TableWarning(UserWarning):
    """What is allowed in tables but may not be meant.

    >>> str(TableWarning("the graph falls into 2 components"))
    'the graph falls into 2 components'
    """


@dataclass(frozen=True, eq=False)
class ClientTables(DataSet):
    r"""A network of clients from a table of samples and a table of edges or of clients, CSV or Parquet.

    They are checked as a whole before anything is trained, and refused with a list of all mistakes. A checkpoint holds
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
        edges: file with a row per edge: two client ids and possibly a weight; ``neighbours`` make edges without one.
        task: ``dnc`` (one row per client), ``snc`` (one label per client) or ``sc`` (each row has its own label).
        client: column of client ids; by default ``client``.
        label: column of labels; by default ``label``.
        split: column of train, val, test or none; by default ``split`` if there is one, else the split is drawn.
        split_by: column of times (numbers or dates): the earliest rows train, the latest test, by ``fractions``.
        id: column of sample ids; by default ``id`` if there is one, else samples are numbered.
        features: feature columns; by default all others.
        numeric: features that must be numbers.
        categorical: features that are categories even if they are numbers; text always is.
        scaling: ``shared`` statistics of the training rows (default), ``per_client`` or ``none``.
        missing: ``fill`` with the mean (default), add an ``indicator`` column too, or ``refuse``.
        missing_values: cells of features and labels that are missing; by default empty, NA, NaN, nan and null.
        max_categories: most categories that a feature may have; by default 100.
        loss: what is lost on a label: ``CrossEntropy`` (default), or ``SquaredError``, ``Huber`` or ``Poisson`` where
            labels are numbers.
        class_weights: of the loss: ``balanced``, or a weight for each label; by default all are 1.
        fractions: train, val and test where there is no split column; by default 0.6, 0.2, 0.2.
        seed: of that split; by default 0.
        clients: file with a row per client: id, in a column of the same name as in ``samples``, and public attributes.
        client_features: its columns that are features of each of a client's rows; by default all.
        neighbours: connect every client to so many nearest ones by the table of clients.
        near: its columns that distances are measured by; by default all.
        distance: ``profile`` (numbers standardised, categories as 0/1; default), ``plane`` (numbers as they are) or
            ``globe`` (latitude and longitude in degrees).
        source: column of one end of an edge; by default the first.
        target: column of the other end; by default the second.
        weight: column of edge weights; by default ``weight`` if there is one.
        separator: of the cells of CSV files; by default a comma.
        public: ranges, categories and classes that everybody may know: rows then tell no statistics (docs/privacy.md).
        encoding: checkpoint whose classes and features to use; on the command line ckpt_path.
        representations: with a checkpoint, ``kept``: rows are scored by what its clients shared last, whoever else is
            in the table; ``rows``: the tables are a network of their own, whose clients share anew. By default
            ``kept`` where some client or edge is of its network.
    """

    files: ClassVar[tuple[str, ...]] = ("samples", "edges", "clients", "encoding", "representations")
    samples: str
    edges: str | None = None
    task: Task | None = None
    client: str | None = None
    label: str | None = None
    split: str | None = None
    split_by: str | None = None
    id: str | None = None
    features: list[str] | None = None
    numeric: list[str] | None = None
    categorical: list[str] | None = None
    scaling: Scaling | None = None
    missing: MissingRule | None = None
    missing_values: list[str] | None = None
    max_categories: int | None = None
    loss: Loss | None = None
    class_weights: ClassWeights = None
    fractions: list[float] | None = None
    seed: int | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    clients: str | None = None
    client_features: list[str] | None = None
    neighbours: int | None = None
    near: list[str] | None = None
    distance: Distance | None = None
    separator: str | None = None
    public: PublicColumns | None = None
    encoding: str | None = None
    representations: Representations | None = None

    def __post_init__(self) -> None:
        for argument in ("samples", "edges", "clients"):
            if getattr(self, argument) is not None:
                require_table(getattr(self, argument), argument)
        check_class_weights(self.class_weights)
        numbers = self.loss is not None and self.loss.of_numbers
        unweighted = self.class_weights is None or not numbers
        require(unweighted, "class_weights", "be left out where labels are numbers", self.class_weights)
        both = self.split is None or self.split_by is None
        require(both, "split_by", "be left out where split names a column", self.split_by)
        self._require_edges()
        anew = self.public is None or self.encoding is None
        require(anew, "public", "be left out where encoding names a checkpoint, whose model has its own", self.public)
        if self.public is not None:
            self.public.check(self.settings, self._loss)
        self.settings  # noqa: B018  # refuses what it cannot take

    def _require_edges(self) -> None:
        """Refuse options that leave open who is connected, or say it twice."""
        scored = self.encoding is not None and self.representations != "rows"
        connected = self.edges is not None or self.neighbours is not None or scored
        require(connected, "edges", "name a table, or neighbours say how many of the nearest clients to connect", None)
        require(
            self.edges is None or self.neighbours is None,
            "neighbours",
            "be left out where edges are given",
            self.neighbours,
        )
        for argument in ("neighbours", "client_features"):
            value = getattr(self, argument)
            tables = value is None or self.clients is not None
            require(tables, "clients", f"name a table where {argument} is given", self.clients)
        for argument in ("near", "distance"):
            value = getattr(self, argument)
            require(value is None or self.neighbours is not None, argument, "be left out without neighbours", value)
        for argument in ("source", "target", "weight"):
            value = getattr(self, argument)
            require(value is None or self.edges is not None, argument, "be left out without edges", value)
        kept = self.representations is None or self.encoding is not None
        require(kept, "representations", "be left out without encoding", self.representations)
        self.rule  # noqa: B018  # refuses what it cannot take

    @cached_property
    def rule(self) -> NeighbourRule | None:
        """How edges are made of the table of clients, if they are."""
        if self.neighbours is None:
            return None
        near = None if self.near is None else tuple(self.near)
        return NeighbourRule(self.neighbours, near, self.distance or "profile")

    @cached_property
    def _saved(self) -> dict[str, Any]:
        """What the named checkpoint holds of its tables; nothing where none is named."""
        return {} if self.encoding is None else saved_tables(self.encoding)

    @cached_property
    def trained(self) -> Encoding | None:
        """What the model of the named checkpoint knows of tables."""
        return None if self.encoding is None else Encoding.from_state(self._saved["encoding"], "encoding")

    @cached_property
    def kept(self) -> KeptNetwork | None:
        """The network that the model of the named checkpoint was trained on, unless the rows at hand are one."""
        if self.encoding is None or self.representations == "rows":
            return None
        return KeptNetwork.from_state(self._saved.get("network"), "encoding")

    @cached_property
    def settings(self) -> Settings:
        """The options with those that were left out: the trained model's, or the defaults."""
        given = {field.name: getattr(self, field.name) for field in fields(Settings)}
        return Settings.of(given, None if self.trained is None else self.trained.settings)

    @cached_property
    def _loss(self) -> Loss:
        """What is lost on a label: what the options say, which must be what a trained model has."""
        if self.trained is None:
            return CrossEntropy() if self.loss is None else self.loss
        same = self.loss is None or type(self.loss) is type(self.trained.loss)
        require(same, "loss", f"be left out or be {self.trained.loss}, as the model was trained", self.loss)
        return self.trained.loss

    @cached_property
    def network(self) -> Network:
        """The tables, read, checked, split and encoded."""
        named = [column for column in OPTIONAL_COLUMNS if getattr(self, column) is not None and self.trained is None]
        columns = EdgeColumns(self.source, self.target, self.weight)
        known = self.trained if self.public is None else self.public.encoding(self.settings, self._loss)
        tables = (self.samples, self.edges, self.settings, named, columns, known, self.clients, self.rule)
        read = read_network(*tables, self.kept, self._loss)
        if read.placement is not None and not read.placement.knows_anyone:
            apart = self.representations is None and self.edges is not None
            require(
                apart,
                "samples",
                "hold clients of the checkpoint's network or new ones with edges to them",
                self.samples,
            )
            read = read_network(*tables, loss=self._loss)
        for sentence in read.warnings:
            warnings.warn(sentence, TableWarning, stacklevel=2)
        return read

    def repeated(self, repetition: int) -> ClientTables:
        """The same tables with the rows or clients split anew; itself where the table says how they are split."""
        if repetition == 0 or self.network.split_is_given:
            return self
        return replace(self, seed=self.settings.seed + repetition)

    def make(self) -> ClientGraph:
        """The graph of the tables, its samples weighted by their classes."""
        return weigh_classes(self.network.graph, self.class_weights, self.names.classes)

    @property
    def names(self) -> Names:
        """What the tables call their clients, samples and classes."""
        return self.network.names

    @property
    def feature_columns(self) -> dict[str, slice]:
        """Columns of x by the columns of the tables that they were made of."""
        found, start = {}, 0
        encoding = self.network.encoding
        for code in encoding.codes + encoding.client_codes:
            found[code.name] = slice(start, start + code.width)
            start += code.width
        return found

    @property
    def missing_cells(self) -> dict[str, int]:
        """How many cells of each feature are missing, in the table of samples or of clients."""
        return self.network.missing

    @property
    def placement(self) -> Placement | None:
        """Where its clients stand in the network of the named checkpoint."""
        return self.network.placement

    @property
    def statistics(self) -> tuple[str, ...]:
        """What is told of the rows: all that an encoding takes, unless it is public; class counts; a drawn split."""
        counts = " and class counts" * (self.class_weights == "balanced")
        if self.public is None:
            return (f"statistics of the tables (means, deviations, categories, classes){counts}",)
        told = ("class counts of the tables",) if counts else ()
        split = "the split of the tables (drawn by their rows; name a column of it)"
        return (*told, split) if self.draws_its_split else told

    @property
    def draws_its_split(self) -> bool:
        """Whether it is the rows that say which of them train, and no column of the table."""
        return not self.network.split_is_given or self.settings.split_by is not None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the tables: the encoding and the network."""
        return {"encoding": self.network.encoding.state(), "network": self.network.kept.state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a checkpoint whose model reads tables in another way."""
        saved = Encoding.from_state(state_dict.get("encoding"), "ckpt_path")
        own = self.network.encoding
        same = replace(saved, settings=own.settings) == own
        require(same, "encoding", "name the checkpoint, as its model reads tables in another way", self.encoding)

    def require_clients(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of clients that some of those at hand are not among."""
        theirs = KeptNetwork.from_state(state_dict.get("network"), "ckpt_path")
        known = bool((theirs.numbers_of([str(name) for name in self.names.clients]) >= 0).all())
        require(known, "samples", "have clients of the checkpoint only, each with its model", self.samples)


def saved_tables(path: str) -> dict[str, Any]:
    """What a checkpoint holds of its tables, where its data set's state is kept under :data:`STATE`."""
    checkpoint = read_sealed(path, "encoding")
    saved = checkpoint.get(STATE) if isinstance(checkpoint, dict) else None
    known = isinstance(saved, dict) and saved.get("encoding") is not None
    require(known, "encoding", "be a checkpoint of a model trained on ClientTables", path)
    assert isinstance(saved, dict)
    return saved
