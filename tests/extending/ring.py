"""A data set from outside the package: a ring of clients in two arcs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gfl_lightning.checks import require_count
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet


@dataclass(frozen=True)
class Ring(DataSet):
    """N clients in a circle, one sample each; the class of a sample is its half of the circle.

    Args:
        num_clients: N.
        num_features: d.
        seed: of the features.
    """

    num_clients: int = 30
    num_features: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        require_count("num_clients", self.num_clients, least=6)
        require_count("num_features", self.num_features)

    def make(self) -> ClientGraph:
        """Features are ±1/2 by class, with standard normal noise; clients train, validate and test in turn."""
        k = torch.arange(self.num_clients)
        y = (2 * k >= self.num_clients).long()
        noise = torch.randn(self.num_clients, self.num_features, generator=torch.Generator().manual_seed(self.seed))
        return ClientGraph.from_edges(
            x=noise + y[:, None] - 0.5,
            y=y,
            client=k,
            split=k % 3,
            shared=torch.ones(self.num_clients, dtype=torch.bool),
            edge_index=torch.stack([k, (k + 1) % self.num_clients]),
            num_classes=2,
        )

    def repeated(self, repetition: int) -> Ring:
        """Other features."""
        return replace(self, seed=self.seed + repetition)
