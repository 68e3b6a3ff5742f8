"""Supervised classification by clients on a connected graph of the contextual stochastic block model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.csgraph import connected_components

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.block_model import check_block_model, signed_graph, streams
from gfl_lightning.graphs.datasets.csbm import (
    edge_probabilities,
    sample_classes,
    sample_direction,
    sample_edges,
    sample_features,
)
from gfl_lightning.graphs.datasets.data_set import DataSet

GRAPH_DRAWS = 1000
LABEL_FOLLOWS_TAG = 0.7


@dataclass(frozen=True)
class SC(DataSet):
    """Supervised classification: every client trains on its own labelled samples and shares those.

    A client's class in the graph is only a tag v: its labels are +1 with probability 0.7 where v = +1 and 0.3
    where v = −1, and features follow the label. The graph is the model's, given that it is connected.

    >>> graph = SC(num_clients=20, num_features=10, train_samples=3).graph
    >>> len(graph.training_clients), int(graph.shared.sum())
    (20, 60)

    Args:
        num_clients: N.
        num_features: p.
        degree: d, the expected degree.
        lam: λ, how much the graph tells of the clients' tags.
        mu: μ, how much the features tell of the labels.
        train_samples: training samples of each client, the ones that it shares.
        val_samples: validation samples of each client.
        test_samples: test samples of each client.
        graph_seed: of the graph, the tags and the direction of the features.
        repetition: of the labels and features.
    """

    num_clients: int = 50
    num_features: int = 100
    degree: float = 5
    lam: float = 2.2
    mu: float = 0.1
    train_samples: int = 10
    val_samples: int = 10
    test_samples: int = 100
    graph_seed: int = 0
    repetition: int = 0

    def __post_init__(self) -> None:
        require_count("train_samples", self.train_samples)
        require_count("val_samples", self.val_samples)
        require_count("test_samples", self.test_samples, 0)
        options = (self.num_features, self.degree, self.lam, self.mu, self.graph_seed, self.repetition)
        check_block_model(self.num_clients, *options, self.train_samples + self.val_samples + self.test_samples)
        require_connectable(self.num_clients, self.degree, self.lam)

    def make(self) -> ClientGraph:
        """v, G and u are fixed; labels and features are redrawn."""
        fixed, redrawn = streams(self.graph_seed, self.repetition)
        v, edges = connected_graph(self.num_clients, self.degree, self.lam, fixed)
        u = sample_direction(self.num_features, fixed)
        parts = (self.train_samples, self.val_samples, self.test_samples)
        client = np.repeat(np.arange(self.num_clients), sum(parts))
        follows = redrawn.random(len(client)) < LABEL_FOLLOWS_TAG
        sign = np.where(follows, v[client], -v[client])
        split = np.tile(np.repeat([Split.TRAIN, Split.VAL, Split.TEST], parts), self.num_clients)
        x = sample_features(sign, self.num_clients, self.mu, u, redrawn)
        return signed_graph(x, sign, client, split, split == Split.TRAIN, edges)

    def repeated(self, repetition: int) -> SC:
        """The same graph and tags with other labels and features."""
        return replace(self, repetition=repetition)


def connected_graph(num_clients: int, degree: float, lam: float, rng: np.random.Generator) -> tuple[Index, Index]:
    """Tags v ``[N]`` and edges ``[2, edges]`` of a connected graph, by drawing again until it is."""
    for _ in range(GRAPH_DRAWS):
        v = sample_classes(num_clients, rng)
        edges = sample_edges(v, degree, lam, rng)
        if connected_components(adjacency_matrix(edges, num_clients), directed=False, return_labels=False) == 1:
            return v, edges
    raise InputError(
        f"degree must be high enough for a connected graph, got {degree} with {num_clients} clients and lam {lam}: "
        f"none of {GRAPH_DRAWS} draws was connected."
    )


def require_connectable(num_clients: int, degree: float, lam: float) -> None:
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
