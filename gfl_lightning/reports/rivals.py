"""What a fit is measured against: other models of the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph

FEDAVG = "FedAvg (the same without neighbours)"
NO_FEATURE = "all training labels, no feature"


@dataclass(frozen=True, eq=False)
class Rival:
    """Another model of the samples of a fit.

    Args:
        title: its name in tables.
        prediction: class probabilities of every sample ``[S, c]``, or its number ``[S, 1]``.
        in_one_place: whether it needs the rows of all clients in one place.
    """

    title: str
    prediction: Tensor
    in_one_place: bool = False


@dataclass(frozen=True, eq=False)
class Joining:
    """Clients that had no part in a training of their own kind, and came with rows and edges but no label.

    Args:
        graph: the network with them.
        rows: their test samples ``[S]``.
        predictions: of every sample by models that were trained without them, by title.
    """

    graph: ClientGraph
    rows: Tensor
    predictions: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Rivals:
    """All that were trained beside a fit.

    Args:
        models: on the same split, with the same options where they share any.
        joining: what is known of new clients.
        missing: a sentence on those that are left out; empty where none is.
    """

    models: Sequence[Rival] = ()
    joining: Joining | None = None
    missing: str = ""

    @property
    def fedavg(self) -> Tensor | None:
        """What the same model without neighbours predicts, if it was trained."""
        return next((one.prediction for one in self.models if one.title == FEDAVG), None)
