"""What is audited: a federation on true records, which clients may replace before anything else happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.privacy.randomise.once import RandomisedOnce

Build = Callable[[ClientGraph, int], Federation]
"""Makes the federation of a graph and a seed."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A federation to audit.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> Subject(DNC(num_clients=50).graph, lambda graph, seed: Federation(graph, seed=seed), rounds=3).words
    False

    Args:
        graph: the true records.
        build: makes federations.
        rounds: how many are made.
        seed: of the federation, and of who is who in the audit.
        records: what clients take part with.
        delta: δ of what is promised.
    """

    graph: ClientGraph
    build: Build
    rounds: int
    seed: int = 0
    records: Records = AsTheyAre()  # noqa: RUF009  # frozen
    delta: float = 0.0

    def trained_on(self, seed: int, graph: ClientGraph | None = None) -> ClientGraph:
        """The records that a federation is trained on, of the true graph or of a neighbouring one."""
        return self.records.of(self.graph if graph is None else graph, np.random.default_rng(seed))

    @cached_property
    def truth(self) -> ClientGraph:
        """The true records, on the scale of those that clients take part with; a rotation has no scale of its own."""
        if isinstance(self.records, Rotated):
            return self.graph
        exact = self.records
        if isinstance(exact, RandomisedOnce):
            exact = replace(exact, epsilon=math.inf)
        return exact.of(self.graph, np.random.default_rng(0))

    @property
    def words(self) -> bool:
        """Whether a client's record is one of words: 0 or 1, not a mean of several, and not projected."""
        graph, x = self.graph, self.graph.x
        single = int(graph.counts(graph.shared).max()) == 1 and self.truth.num_features == graph.num_features
        return single and bool(((x == 0) | (x == 1)).all())

    @property
    def known_to_clients(self) -> bool:
        """Whether every client can undo what happens to records, so that it hides nothing from fellow clients."""
        return isinstance(self.records, Rotated)
