"""The contract of records: the client graph that everything after it sees, made of the one that the data are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.propagation import propagation
from gfl_lightning.graphs.records.echo import echoes, with_echoes


@dataclass(frozen=True)
class Census:
    """What records of some clients depend on that is about all clients: three numbers that everybody may know.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> Census.of(DNC(num_clients=50).graph)
    Census(clients=50, labelled=5, most=1)

    Args:
        clients: N.
        labelled: K, how many of them share a training sample.
        most: the most labels in use, for training or validation, that one of them has.
    """

    clients: int
    labelled: int
    most: int

    @classmethod
    def of(cls, graph: ClientGraph) -> Census:
        """Of the clients of a graph."""
        train = graph.mask(Split.TRAIN)
        shared = graph.client[graph.shared & train].unique()
        used = graph.counts(train | graph.mask(Split.VAL))
        return cls(graph.num_clients, len(shared), int(used.max()))


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

    by_site: ClassVar[bool] = False
    """Whether a site can make those of its own clients by itself, by :meth:`of_some`."""

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

    def of_some(self, graph: ClientGraph, source: np.random.Generator, census: Census) -> ClientGraph:
        """The records of some clients, whose graph this is, of those that the census counts."""
        raise InputError(f"records must be ones that a site can make by itself, got {self!r}.")

    def label_columns(self, num_classes: int) -> int:
        """How many columns, the last, hold labels that are shared; none by default."""
        return 0

    def heard(self, graph: ClientGraph, gamma: Tensor) -> ClientGraph:
        """The records once it is known how they travel: with the echoes of labels that are shared, if any are."""
        columns = self.label_columns(graph.num_classes)
        if not columns:
            return graph
        return with_echoes(graph, columns, echoes(propagation(graph, gamma, torch.float64), graph.training_clients))
