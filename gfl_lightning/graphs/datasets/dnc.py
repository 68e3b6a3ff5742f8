"""Deterministic node classification on the contextual stochastic block model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.block_model import (
    check_block_model,
    require_a_tenth,
    signed_graph,
    split_graph,
    streams,
)
from gfl_lightning.graphs.datasets.csbm import sample_direction, sample_features
from gfl_lightning.graphs.datasets.data_set import DataSet


@dataclass(frozen=True)
class DNC(DataSet):
    """Deterministic node classification: one sample per client, clients split 10/10/80 %.

    >>> DNC(num_clients=60, num_features=10).graph  # doctest: +NORMALIZE_WHITESPACE
    ClientGraph(60 clients, 213 edges, 60 samples (1 per client), 10 features, 2 classes; train 6, val 6, test 48;
    6 clients train)

    Args:
        num_clients: N.
        num_features: p.
        degree: d, the expected degree.
        lam: λ, how much the graph tells of the classes.
        mu: μ, how much the features tell.
        graph_seed: of the graph, the classes and the split.
        repetition: of the features.
    """

    num_clients: int = 200
    num_features: int = 100
    degree: float = 8
    lam: float = 2
    mu: float = 1
    graph_seed: int = 0
    repetition: int = 0

    def __post_init__(self) -> None:
        require_a_tenth(self.num_clients)
        options = (self.num_features, self.degree, self.lam, self.mu, self.graph_seed, self.repetition)
        check_block_model(self.num_clients, *options)

    def make(self) -> ClientGraph:
        """v, G and the split of the clients are fixed; u and the features are redrawn."""
        fixed, redrawn = streams(self.graph_seed, self.repetition)
        v, edges, split = split_graph(self.num_clients, self.degree, self.lam, fixed)
        u = sample_direction(self.num_features, redrawn)
        x = sample_features(v, self.num_clients, self.mu, u, redrawn)
        everyone = np.ones(self.num_clients, dtype=bool)
        return signed_graph(x, v, np.arange(self.num_clients), split, everyone, edges)

    def repeated(self, repetition: int) -> DNC:
        """The same graph, classes and split with other features."""
        return replace(self, repetition=repetition)
