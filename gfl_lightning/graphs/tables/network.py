"""Two tables become a client graph: read, checked as a whole, split and encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.tables.edges import EdgeColumns, Edges, components, read_edges
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.features import check_features
from gfl_lightning.graphs.tables.problems import Problems
from gfl_lightning.graphs.tables.samples import Samples, check_samples, read_samples
from gfl_lightning.graphs.tables.settings import Settings, Task
from gfl_lightning.graphs.tables.splits import split_clients, split_rows


@dataclass(frozen=True, eq=False)
class Network:
    """A client graph from tables.

    Args:
        graph: the client graph.
        names: what the tables call its clients, samples and classes.
        encoding: what a model trained on it must know to read other tables.
        warnings: sentences on what is allowed but may not be meant.
    """

    graph: ClientGraph
    names: Names
    encoding: Encoding
    warnings: list[str]


def read_network(
    samples: str,
    edges: str,
    settings: Settings,
    named: Sequence[str] = (),
    edge_columns: EdgeColumns | None = None,
    encoding: Encoding | None = None,
) -> Network:
    """Read two tables, refusing them with a list of everything that is wrong.

    Args:
        samples: file of samples.
        edges: file of edges.
        settings: how to read them.
        named: the optional columns that the user named, which must be there.
        edge_columns: the columns of the table of edges.
        encoding: of a trained model; its classes and features are used, and rows need no labels.
    """
    problems = Problems()
    table = read_samples(samples, settings, named)
    rows = check_samples(table, settings, None if encoding is None else encoding.classes, problems)
    features = check_features(table, settings, None if encoding is None else encoding.trained, problems)
    links = read_edges(edges, edge_columns or EdgeColumns(), rows.clients, table.name, settings.separator, problems)
    problems.refuse()
    parts = [components(links, len(rows.clients), edges)]
    split = rows.split
    if split is None:
        split, sentence = _drawn_split(rows, links, settings)
        parts.append(sentence)
    if encoding is None:
        _check_split(rows, split, settings, problems)
        encoding = Encoding.fit(settings, rows.classes, features, split == Split.TRAIN)
        if encoding.num_features == 0:
            problems.add(table.name, "no feature has a value in the training rows")
        problems.refuse()
    graph = ClientGraph.from_edges(
        x=torch.from_numpy(encoding.encode(features, rows.client)),
        y=torch.from_numpy(rows.label),
        client=torch.from_numpy(rows.client),
        split=torch.from_numpy(split.astype(np.int8)),
        shared=torch.from_numpy(_shared(settings.task, rows.client, split)),
        edge_index=torch.from_numpy(links.index),
        num_classes=len(encoding.classes),
        edge_weight=None if links.weight is None else torch.from_numpy(links.weight.astype(np.float32)),
    )
    names = Names(rows.clients, rows.sample.tolist(), encoding.classes)
    return Network(graph, names, encoding, [sentence for sentence in parts if sentence is not None])


def _drawn_split(rows: Samples, links: Edges, settings: Settings) -> tuple[Index, str | None]:
    """The split of each row, and a sentence where the training clients are not connected."""
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


def _shared(task: Task, client: Index, split: Index) -> NDArray[np.bool_]:
    """Which rows enter ĥ: all in dnc and snc; in sc a client's training rows, or all where it has none."""
    if task != "sc":
        return np.ones(len(client), dtype=bool)
    train = split == Split.TRAIN
    trains = np.bincount(client[train], minlength=int(client.max()) + 1) > 0
    return train | ~trains[client]
