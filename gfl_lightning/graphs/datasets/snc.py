"""Stochastic node classification on the contextual stochastic block model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gfl_lightning.checks import require_count
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
class SNC(DataSet):
    """Stochastic node classification: many samples and one label per client, clients split 10/10/80 %.

    >>> SNC(num_clients=60, num_features=10, samples_per_client=5).graph.counts().unique().tolist()
    [5]

    Args:
        num_clients: N.
        num_features: p.
        degree: d, the expected degree.
        lam: λ, how much the graph tells of the classes.
        mu: μ, how much the features tell.
        samples_per_client: samples of each client.
        graph_seed: of the graph, the classes, the split and the direction of the features.
        repetition: of the features.
    """

    num_clients: int = 200
    num_features: int = 100
    degree: float = 10
    lam: float = 2
    mu: float = 1
    samples_per_client: int = 40
    graph_seed: int = 0
    repetition: int = 0

    def __post_init__(self) -> None:
        require_a_tenth(self.num_clients)
        require_count("samples_per_client", self.samples_per_client)
        options = (self.num_features, self.degree, self.lam, self.mu, self.graph_seed, self.repetition)
        check_block_model(self.num_clients, *options, self.samples_per_client)

    def make(self) -> ClientGraph:
        """v, G, u and the split of the clients are fixed; the features are redrawn."""
        fixed, redrawn = streams(self.graph_seed, self.repetition)
        v, edges, split = split_graph(self.num_clients, self.degree, self.lam, fixed)
        u = sample_direction(self.num_features, fixed)
        client = np.repeat(np.arange(self.num_clients), self.samples_per_client)
        x = sample_features(v[client], self.num_clients, self.mu, u, redrawn)
        return signed_graph(x, v[client], client, split[client], np.ones(len(client), dtype=bool), edges)

    def repeated(self, repetition: int) -> SNC:
        """The same graph, classes and split with other features."""
        return replace(self, repetition=repetition)
