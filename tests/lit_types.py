"""Types of fixtures, and a data set for graphs that tests make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer

Fit = Callable[..., tuple[FederatedTrainer, GFL]]


@dataclass(frozen=True, eq=False)
class Given(DataSet):
    """A graph that is there already."""

    given: ClientGraph

    def make(self) -> ClientGraph:
        return self.given
