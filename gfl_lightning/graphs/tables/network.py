"""Two tables become a client graph: read, checked as a whole, split and encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from gfl_lightning.checks import require
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.graphs.tables.clients import ClientRows, read_clients
from gfl_lightning.graphs.tables.edges import EdgeColumns, Edges, components, read_edges
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.features import check_features, feature_columns
from gfl_lightning.graphs.tables.kept import KeptNetwork
from gfl_lightning.graphs.tables.neighbours import NeighbourRule, Profiles
from gfl_lightning.graphs.tables.number_labels import number_classes
from gfl_lightning.graphs.tables.order import split_by_order
from gfl_lightning.graphs.tables.problems import Problems
from gfl_lightning.graphs.tables.reading import column_names
from gfl_lightning.graphs.tables.samples import Samples, check_samples, read_samples
from gfl_lightning.graphs.tables.settings import Settings, Task
from gfl_lightning.graphs.tables.splits import split_clients, split_rows

NO_EDGES = Edges(np.zeros((2, 0), dtype=np.int64), None)


@dataclass(frozen=True, eq=False)
class Network:
    """A client graph from tables.

    Args:
        graph: the client graph.
        names: what the tables call its clients, samples and classes.
        encoding: what a model trained on it must know to read other tables.
        kept: what is kept of it, so that a model trained on it can score new rows alone.
        warnings: sentences on what is allowed but may not be meant.
        placement: where its clients stand in the network that a model was trained on; ``None`` where it is a whole
            network of its own.
        split_is_given: whether the table says what its rows are for.
        missing: how many cells of each feature are missing, where some are.
    """

    graph: ClientGraph
    names: Names
    encoding: Encoding
    kept: KeptNetwork
    warnings: list[str]
    placement: Placement | None = None
    split_is_given: bool = False
    missing: dict[str, int] = field(default_factory=dict)


def read_network(
    samples: str,
    edges: str | None,
    settings: Settings,
    named: Sequence[str] = (),
    edge_columns: EdgeColumns | None = None,
    encoding: Encoding | None = None,
    clients: str | None = None,
    rule: NeighbourRule | None = None,
    kept: KeptNetwork | None = None,
    loss: Loss = CrossEntropy(),  # noqa: B008  # frozen
) -> Network:
    """Read tables, refusing them with a list of everything that is wrong.

    Args:
        samples: file of samples.
        edges: file of edges, if there is one.
        settings: how to read them.
        named: the optional columns that the user named, which must be there.
        edge_columns: the columns of the table of edges.
        encoding: of a trained model; its classes and features are used, and rows need no labels.
        clients: file of clients, if there is one.
        rule: how edges are made of it, if they are.
        kept: the network that a model was trained on, among whose clients those at hand are scored.
        loss: what is lost on a label, which says whether labels are classes or numbers; a trained model has its own.
    """
    loss = loss if encoding is None else encoding.loss
    problems = Problems()
    of_clients = [] if clients is None else column_names(clients, "clients", settings.separator)
    of_clients += [] if encoding is None else list(encoding.trained_of_clients)
    table = read_samples(samples, settings, named, of_clients)
    known = None if encoding is None else encoding.classes
    rows = check_samples(table, settings, known, problems, loss.of_numbers)
    columns = feature_columns(table, settings) if encoding is None else list(encoding.trained)
    features = check_features(table, columns, settings, None if encoding is None else encoding.trained, problems)
    if kept is not None and kept.profiles is not None and edges is None:
        rule = kept.profiles.rule
    people = _read_people(clients, settings, rows, columns, rule, encoding, kept, problems)
    if not columns and not people.features:
        problems.add(table.name, "there is no column of features")
    links = NO_EDGES
    if edges is not None:
        names = rows.clients if kept is None else [*rows.clients, *kept.others(rows.clients)]
        links = read_edges(edges, edge_columns or EdgeColumns(), names, table.name, settings.separator, problems)
    problems.refuse()
    if kept is None:
        profiles = None if people.rule is None else Profiles.of(people.rule, people.near)
        links = links if profiles is None else Edges(profiles.edges(), None)
        placement, sentences = None, [components(links, len(rows.clients), edges or str(clients))]
        if rows.values is None and encoding is None:
            sentences.append(number_classes(rows.classes, f"{table.name} column {settings.label!r}"))
    else:
        profiles = kept.profiles
        links = kept.nearest_links(rows.clients, people.near) if people.rule is not None else links
        placement, sentence = kept.placement(rows.clients, links)
        links, sentences = kept.edges_among(rows.clients), [sentence]
    split = rows.split
    if split is None:
        split, sentence = _drawn_split(rows, links, settings, encoding is not None, problems)
        sentences.append(sentence)
    trains = split == Split.TRAIN
    if encoding is None:
        _check_split(rows, split, settings, problems)
        training_clients = np.bincount(rows.client[trains], minlength=len(rows.clients)) > 0
        if rows.values is not None and trains.any():
            loss = loss.fitted(torch.from_numpy(rows.values[trains]))
        encoding = Encoding.fit(settings, rows.classes, features, trains, people.features, training_clients, loss)
        if encoding.num_features == 0:
            problems.add(table.name, "no feature has a value in the training rows")
        problems.refuse()
    levels = encoding.levels(features, rows.client)
    levels = levels if kept is None else kept.levels_for(rows.clients, levels)
    graph = ClientGraph.from_edges(
        x=torch.from_numpy(encoding.encode(features, rows.client, people.features, levels)),
        y=torch.from_numpy(rows.label if rows.values is None else rows.values),
        client=torch.from_numpy(rows.client),
        split=torch.from_numpy(split.astype(np.int8)),
        shared=torch.from_numpy(shared_rows(settings.task, rows.client, split)),
        edge_index=torch.from_numpy(links.index),
        num_classes=len(encoding.classes),
        edge_weight=None if links.weight is None else torch.from_numpy(links.weight.astype(np.float32)),
        loss=encoding.loss,
    )
    return Network(
        graph,
        Names(rows.clients, rows.sample.tolist(), encoding.classes),
        encoding,
        KeptNetwork.of(graph, rows.clients, profiles, levels),
        [sentence for sentence in sentences if sentence is not None],
        placement,
        rows.split is not None or rows.order is not None,
        {one.name: int(one.missing.sum()) for one in [*features, *people.features] if one.missing.any()},
    )


def _read_people(
    clients: str | None,
    settings: Settings,
    rows: Samples,
    taken: Sequence[str],
    rule: NeighbourRule | None,
    encoding: Encoding | None,
    kept: KeptNetwork | None,
    problems: Problems,
) -> ClientRows:
    """What the table of clients says, if there is one; a model that was trained on one needs it again."""
    wanted = {} if encoding is None else encoding.trained_of_clients
    places = {} if kept is None or kept.profiles is None or rule is None else kept.profiles.kinds
    joins = kept is not None and bool(places) and bool((kept.numbers_of(rows.clients) < 0).any())
    if clients is None:
        require(not wanted, "clients", f"name a table with {', '.join(wanted)}, as the model was trained", None)
        require(not joins, "clients", f"name a table with {', '.join(places)}, by which new clients are placed", None)
        return ClientRows()
    trained = None if encoding is None else (wanted, places if joins else {})
    rule = rule if kept is None or joins else None
    return read_clients(clients, settings, rows.clients, taken, rule, trained, problems)


def _drawn_split(
    rows: Samples, links: Edges, settings: Settings, is_trained: bool, problems: Problems
) -> tuple[Index, str | None]:
    """The split of each row, and a sentence where the training clients are not connected.

    Rows for a trained model may be of too few times to be split: then all that have a label are for tests.
    """
    if rows.order is not None:
        split = split_by_order(rows.order, rows.label, settings.fractions)
        if split is None and is_trained:
            return np.where(rows.label >= 0, int(Split.TEST), int(Split.NONE)), None
        if split is None:
            column = f"{rows.table.name} column {settings.split_by!r}"
            problems.add(column, "too few different times for a split into train, val and test")
            problems.refuse()
        assert split is not None
        return split, None
    rng = np.random.default_rng(settings.seed)
    if settings.task == "sc":
        return split_rows(rows.client, rows.label, settings.fractions, rng), None
    N = len(rows.clients)
    label = np.full(N, -1)
    known = rows.label >= 0
    label[rows.client[known]] = rows.label[known]
    both_directions = np.concatenate([links.index, links.index[::-1]], axis=1)
    by_client, connected = split_clients(label, adjacency_matrix(both_directions, N), settings.fractions, rng)
    sentence = None if connected else "no connected set of training clients was found: they are drawn by class alone."
    return np.where(known, by_client[rows.client], int(Split.NONE)), sentence


def _check_split(rows: Samples, split: Index, settings: Settings, problems: Problems) -> None:
    """Note what a drawn split lacks for training; one that the table gives was checked with it."""
    if rows.split is None:
        noun = "rows" if settings.task == "sc" else "clients"
        for part in (Split.TRAIN, Split.VAL):
            if not (split == part).any():
                problems.add(rows.table.name, f"too few labelled {noun} for a {part.name.lower()} split of {noun}")


def shared_rows(task: Task, client: Index, split: Index) -> NDArray[np.bool_]:
    """Which rows enter ĥ: all in dnc and snc; in sc a client's training rows, or all where it has none."""
    if task != "sc":
        return np.ones(len(client), dtype=bool)
    train = split == Split.TRAIN
    trains = np.bincount(client[train], minlength=int(client.max()) + 1) > 0
    return train | ~trains[client]
