"""When a training has diverged: its loss is no number, or has exploded."""

from __future__ import annotations

import torch

from gfl_lightning.graphs.client_graph import ClientGraph, Split

EXPLODED = 1e6
"""How many times the loss of a model that says nothing, or of the initial one, a training loss may be."""


def largest_loss(graph: ClientGraph) -> float:
    """The training loss from which on a training may have diverged, by the loss of outputs that are all zero.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> round(largest_loss(KarateClub().graph))  # 10⁶ ln 4
    1386294
    """
    rows = graph.mask(Split.TRAIN)
    nothing = graph.x.new_zeros(int(rows.sum()), graph.num_classes, dtype=torch.float64)
    losses = graph.losses(nothing, rows)
    return EXPLODED * max(float(losses.mean()), 1e-6) if len(losses) else float("inf")
