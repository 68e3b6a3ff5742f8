"""Samples as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.records import Census, Records


@dataclass(frozen=True)
class AsTheyAre(Records):
    """Every client takes part with its samples.

    >>> AsTheyAre().num_features(100, 2)
    100
    """

    by_site: ClassVar[bool] = True

    @property
    def is_inert(self) -> bool:
        """Nothing is changed."""
        return True

    def num_features(self, num_features: int, num_classes: int) -> int:
        """d."""
        return num_features

    def at_home(self, graph: ClientGraph) -> ClientGraph:
        """The graph itself."""
        return graph

    def of(self, graph: ClientGraph, source: np.random.Generator) -> ClientGraph:
        """The graph itself."""
        return graph

    def of_some(self, graph: ClientGraph, source: np.random.Generator, census: Census) -> ClientGraph:
        """The graph itself."""
        return graph
