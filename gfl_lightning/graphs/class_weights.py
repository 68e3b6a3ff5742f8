"""Class imbalance: w_y as the weight of a sample's loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Name

ClassWeights = Literal["balanced"] | dict[str, float] | None


def check_class_weights(weights: ClassWeights) -> None:
    """Refuse weights that no classes can have."""
    if isinstance(weights, dict):
        positive = all(math.isfinite(value) and value > 0 for value in weights.values())
        require(positive, "class_weights", "be positive and finite", weights)
    else:
        require(weights in (None, "balanced"), "class_weights", "be balanced or a weight for each class", weights)


def weigh_classes(graph: ClientGraph, weights: ClassWeights, classes: Sequence[Name]) -> ClientGraph:
    """The graph with weight w_y for each sample, of every split, so that validation picks by what training minimises.

    ``balanced`` is w_y = n / (c n_y) over the n training samples, whose mean is 1: the clients tell the server how many
    training samples they have of each class. A mapping gives the weight of each class by its name.
    """
    if weights is None:
        return graph
    check_class_weights(weights)
    by_class = _balanced(graph) if isinstance(weights, str) else _given(weights, classes)
    known = graph.y.clamp_min(0)
    return replace(graph, weight=torch.where(graph.y >= 0, by_class.to(graph.x)[known], 1.0))


def _balanced(graph: ClientGraph) -> Tensor:
    counts = torch.bincount(graph.y[graph.mask(Split.TRAIN)], minlength=graph.num_classes).double()
    return torch.where(counts > 0, counts.sum() / (graph.num_classes * counts.clamp_min(1)), 1.0)


def _given(weights: Mapping[str, float], classes: Sequence[Name]) -> Tensor:
    names = [str(name) for name in classes]
    require(set(weights) == set(names), "class_weights", f"give a weight for each of {', '.join(names)}", dict(weights))
    return torch.tensor([weights[name] for name in names], dtype=torch.float64)
