"""Labels as shared features: a labelled client shares its label too, and does not train on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.records.records import Census, Records


@dataclass(frozen=True)
class SharedLabels(Records):
    """A training sample x that is shared becomes two rows: (x, 0), trained on, and (x, w y), shared, y being centred.

    So the labels of neighbours inform a client, and none can learn to copy its own: its training row's output is
    Ã_kk h(x, 0) + C_k, and C_k holds the others' rows alone. All other samples get zeros in the new columns. Once it is
    known how records travel, the zeros of training rows become an echo (see `echoes`): their own label, as faint as
    clients that do not train read it. The weight w = scale · N/K, with N clients of which K share a label, makes what
    propagation leaves of it independent of how few they are.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> graph = DNC(num_clients=50, num_features=8).graph
    >>> seen = SharedLabels().of(graph, np.random.default_rng(0))
    >>> seen.num_features, seen.num_samples - graph.num_samples, len(graph.training_clients)
    (10, 5, 5)

    Args:
        scale: how large the columns of a label are beside the features.
    """

    scale: float = 1.0

    by_site: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(0 < self.scale < np.inf, "scale", "be positive and finite", self.scale)

    def num_features(self, num_features: int, num_classes: int) -> int:
        """d + c."""
        return num_features + self.label_columns(num_classes)

    def label_columns(self, num_classes: int) -> int:
        """c."""
        return num_classes

    def at_home(self, graph: ClientGraph) -> ClientGraph:
        """The graph with zeros in place of labels."""
        return with_columns(graph, graph.num_classes)

    def of(self, graph: ClientGraph, source: np.random.Generator) -> ClientGraph:
        """The graph with the labels of its training samples."""
        return self.of_some(graph, source, Census.of(graph))

    def of_some(self, graph: ClientGraph, source: np.random.Generator, census: Census) -> ClientGraph:
        """The same of some clients, under the weight of all."""

        def columns(label: Tensor) -> Tensor:
            c = graph.num_classes
            return graph.loss.targets(label, c, graph.x.dtype) - (1 / c if c > 1 else 0)

        return with_shared_labels(graph, columns, self.scale, census)


def with_shared_labels(
    graph: ClientGraph, columns: Callable[[Tensor], Tensor], scale: float, census: Census
) -> ClientGraph:
    """The graph whose shared training samples share ``columns`` of their labels, ``[n] → [n, c]``, as features too."""
    labelled = graph.shared & graph.mask(Split.TRAIN)
    rows = labelled.nonzero().flatten()
    weight = scale * census.clients / max(census.labelled, 1)
    label = weight * columns(graph.y[rows]).to(graph.x)
    shown = torch.cat([graph.x[rows], label], 1)
    plain = with_columns(graph, label.shape[1]).x
    added = {
        "x": (plain, shown),
        "y": (graph.y, torch.full_like(graph.y[rows], graph.loss.unknown)),
        "client": (graph.client, graph.client[rows]),
        "split": (graph.split, torch.full_like(graph.split[rows], int(Split.NONE))),
        "shared": (graph.shared & ~labelled, torch.ones_like(graph.shared[rows])),
        "weight": (graph.weight, torch.ones_like(graph.weight[rows])),
    }
    columns_of_the_graph: dict[str, Any] = {name: torch.cat(parts) for name, parts in added.items()}
    return replace(graph, **columns_of_the_graph)


def with_columns(graph: ClientGraph, columns: int) -> ClientGraph:
    """The graph with so many more features, all 0."""
    return replace(graph, x=torch.cat([graph.x, graph.x.new_zeros(graph.num_samples, columns)], 1))
