"""The contract of records: the client graph that everything after it sees, made of the one that the data are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from gfl_lightning.graphs.client_graph import ClientGraph


class Records(ABC):
    """A client graph ↦ the one that clients take part with, each replacing its own samples and nobody else's.

    A subclass is a frozen dataclass of its options. The samples of the graph stay its first rows, in their order, so
    that predictions are of them; rows that are only shared may follow.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> from gfl_lightning.graphs.records.as_they_are import AsTheyAre
    >>> graph = DNC(num_clients=50).graph
    >>> AsTheyAre().of(graph, np.random.default_rng(0)) is graph
    True
    """

    epsilon: float = math.inf
    """What everything that is made of the records promises to those whose data they are: ε, ∞ where it is nothing."""

    delta: float = 0.0
    """δ of that promise; 0 where it is pure."""

    unit: Literal["client", "sample"] = "client"
    """Whose data it is about: all of a client's, or each sample's."""

    @property
    def is_inert(self) -> bool:
        """Whether the samples stay as they are."""
        return False

    @abstractmethod
    def num_features(self, num_features: int, num_classes: int) -> int:
        """Features of the records for data of d features and c classes."""

    @abstractmethod
    def at_home(self, graph: ClientGraph) -> ClientGraph:
        """The graph where nothing of it leaves its clients: their samples as they are, as the model reads records."""

    @abstractmethod
    def of(self, graph: ClientGraph, source: np.random.Generator) -> ClientGraph:
        """The records; what is random about them is drawn from ``source``, by samples that are used or shared alone."""
