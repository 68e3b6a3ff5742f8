"""The synthetic data sets of the paper: DNC, SNC and SC recipes on the contextual stochastic block model.

Everything that ``graph_seed`` fixes (graph, classes, split, and the direction u where the recipe fixes it) is
drawn from one stream, everything that ``repetition`` redraws (features, SC labels) from another.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.balanced_growth import grow_training_set
from gfl_lightning.graphs.datasets.csbm import (
    Array,
    Index,
    edge_probabilities,
    sample_classes,
    sample_direction,
    sample_edges,
    sample_features,
)

GRAPH_DRAWS = 1000
LABEL_FOLLOWS_TAG = 0.7


def dnc(
    num_clients: int = 200,
    num_features: int = 100,
    degree: float = 8,
    lam: float = 2,
    mu: float = 1,
    graph_seed: int = 0,
    repetition: int = 0,
) -> ClientGraph:
    """Deterministic node classification: one sample per client, clients split 10/10/80 %."""
    return _node_classification(num_clients, num_features, degree, lam, mu, 1, False, graph_seed, repetition)


def snc(
    num_clients: int = 200,
    num_features: int = 100,
    degree: float = 10,
    lam: float = 2,
    mu: float = 1,
    samples_per_client: int = 40,
    graph_seed: int = 0,
    repetition: int = 0,
) -> ClientGraph:
    """Stochastic node classification: many samples and one label per client, clients split 10/10/80 %.

    The direction u of the features is fixed with the graph.
    """
    return _node_classification(
        num_clients, num_features, degree, lam, mu, samples_per_client, True, graph_seed, repetition
    )


def sc(
    num_clients: int = 50,
    num_features: int = 100,
    degree: float = 5,
    lam: float = 2.2,
    mu: float = 0.1,
    train_samples: int = 10,
    val_samples: int = 10,
    test_samples: int = 100,
    graph_seed: int = 0,
    repetition: int = 0,
) -> ClientGraph:
    """Supervised classification: every client trains on its own labelled samples and shares those.

    A client's class in the graph is only a tag v: its labels are +1 with probability 0.7 where v = +1 and 0.3
    where v = −1, and features follow the label. The graph is the model's, given that it is connected. The
    direction u is fixed with the graph.
    """
    for name, value in (("train_samples", train_samples), ("val_samples", val_samples)):
        require_count(name, value)
    require_count("test_samples", test_samples, 0)
    fixed, redrawn = _streams(graph_seed, repetition)
    tag, edges = _connected_graph(num_clients, degree, lam, fixed)
    u = sample_direction(num_features, fixed)
    per_client = train_samples + val_samples + test_samples
    client = np.repeat(np.arange(num_clients), per_client)
    follows = redrawn.random(len(client)) < LABEL_FOLLOWS_TAG
    sign = np.where(follows, tag[client], -tag[client])
    parts = np.repeat([Split.TRAIN, Split.VAL, Split.TEST], [train_samples, val_samples, test_samples])
    split = np.tile(parts, num_clients)
    x = sample_features(sign, num_clients, mu, u, redrawn)
    return _client_graph(x, sign, client, split, split == Split.TRAIN, edges)


def _node_classification(
    num_clients: int,
    num_features: int,
    degree: float,
    lam: float,
    mu: float,
    samples_per_client: int,
    fixed_direction: bool,
    graph_seed: int,
    repetition: int,
) -> ClientGraph:
    require(num_clients >= 20, "num_clients", "be at least 20, for 10 % of them to hold both classes", num_clients)
    require_count("samples_per_client", samples_per_client)
    fixed, redrawn = _streams(graph_seed, repetition)
    v = sample_classes(num_clients, fixed)
    edges = sample_edges(v, degree, lam, fixed)
    client_split = _client_split(v, edges, fixed)
    u = sample_direction(num_features, fixed if fixed_direction else redrawn)
    client = np.repeat(np.arange(num_clients), samples_per_client)
    x = sample_features(v[client], num_clients, mu, u, redrawn)
    return _client_graph(x, v[client], client, client_split[client], np.ones(len(client), dtype=bool), edges)


def _streams(graph_seed: int, repetition: int) -> tuple[np.random.Generator, np.random.Generator]:
    require_count("graph_seed", graph_seed, 0)
    require_count("repetition", repetition, 0)
    return np.random.default_rng([graph_seed]), np.random.default_rng([graph_seed, 1, repetition])


def _client_split(v: Index, edges: Index, rng: np.random.Generator) -> Index:
    """Split of each client: 10 % train (balanced, connected), 10 % validation, the rest test."""
    tenth = len(v) // 10
    both_directions = np.concatenate([edges, edges[::-1]], axis=1)
    train = grow_training_set(adjacency_matrix(both_directions, len(v)), v, tenth, rng)
    split = np.full(len(v), int(Split.TEST))
    split[train] = Split.TRAIN
    rest = np.flatnonzero(split == Split.TEST)
    split[rng.choice(rest, tenth, replace=False)] = Split.VAL
    return split


def _connected_graph(num_clients: int, degree: float, lam: float, rng: np.random.Generator) -> tuple[Index, Index]:
    """Classes and edges of a connected graph, by drawing again until it is."""
    _require_connectable(num_clients, degree, lam)
    for _ in range(GRAPH_DRAWS):
        v = sample_classes(num_clients, rng)
        edges = sample_edges(v, degree, lam, rng)
        if connected_components(adjacency_matrix(edges, num_clients), directed=False, return_labels=False) == 1:
            return v, edges
    raise InputError(
        f"degree must be high enough for a connected graph, got {degree} with {num_clients} clients and lam {lam}: "
        f"none of {GRAPH_DRAWS} draws was connected."
    )


def _require_connectable(num_clients: int, degree: float, lam: float) -> None:
    """Refuse at once parameters under which fewer than about one draw in a hundred can be connected."""
    inside, across = edge_probabilities(num_clients, degree, lam)
    half = num_clients / 2
    bridges = half * half * across
    require(
        bridges > 0.01,
        "lam",
        f"be below √degree = {math.sqrt(degree):.4g} by enough for the two classes to be joined",
        f"{lam} ({bridges:.2g} edges across classes expected)",
    )
    isolated = num_clients * (1 - inside) ** (half - 1) * (1 - across) ** half
    require(
        isolated < 5,
        "degree",
        f"be high enough for a connected graph of {num_clients} clients",
        f"{degree} (about {isolated:.3g} clients without an edge expected in each draw)",
    )


def _client_graph(x: Array, sign: Index, client: Index, split: Index, shared: np.ndarray, edges: Index) -> ClientGraph:
    return ClientGraph.from_edges(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy((sign > 0).astype(np.int64)),
        client=torch.from_numpy(client),
        split=torch.from_numpy(split.astype(np.int8)),
        shared=torch.from_numpy(shared),
        edge_index=torch.from_numpy(edges),
        num_classes=2,
    )
