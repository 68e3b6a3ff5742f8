"""Loss and accuracy of W̄ on each split, from the logits of all samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split

SPLITS = (Split.TRAIN, Split.VAL, Split.TEST)


@dataclass(frozen=True)
class Metrics:
    """Cross-entropy, weighted where the graph's samples are, and accuracy on one split.

    ``loss`` and ``accuracy`` are means over samples. ``client_loss`` and ``client_accuracy`` are means over
    clients: a client whose samples in the split have one label (DNC, SNC) is right if the mean of their logits
    predicts it, one with several labels (SC) counts with its own accuracy. ``nan`` on an empty split.
    """

    loss: float
    accuracy: float
    client_loss: float
    client_accuracy: float


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Segment means over the labelled samples of a graph, by split and by (split, client)."""

    graph: ClientGraph

    @cached_property
    def _rows(self) -> Tensor:
        return (self.graph.split != int(Split.NONE)).nonzero().flatten()

    @cached_property
    def _label(self) -> Tensor:
        return self.graph.y[self._rows]

    @cached_property
    def _in_split(self) -> Segments:
        return Segments.of(self.graph.split[self._rows], self.graph.x.dtype)

    @cached_property
    def _segments(self) -> tuple[Tensor, Tensor, Tensor, Segments]:
        """For (split, client) pairs: pair of each sample, its share, label (−1 if several), splits of the pairs."""
        part, client = self.graph.split[self._rows].long(), self.graph.client[self._rows]
        pair_key, pair = torch.unique(part * self.graph.num_clients + client, return_inverse=True)
        share = 1 / torch.bincount(pair)[pair].to(self.graph.x.dtype)
        low = torch.full_like(pair_key, self.graph.num_classes).scatter_reduce_(0, pair, self._label, "amin")
        high = torch.full_like(pair_key, -1).scatter_reduce_(0, pair, self._label, "amax")
        in_split = Segments.of(pair_key // self.graph.num_clients, self.graph.x.dtype)
        return pair, share, torch.where(low == high, low, -1), in_split

    def __call__(self, logits: Tensor) -> dict[str, Metrics]:
        """Metrics by split name (train, val, test) from logits of all samples ``[S, c]``."""
        logits = logits if len(self._rows) == len(logits) else logits[self._rows]
        loss = self.graph.losses(logits, self._rows)
        right = logits.argmax(1).eq(self._label)
        per_sample = torch.stack([loss, right.to(loss.dtype)])
        found = self._in_split.means(per_sample)
        by_client = found
        pair, share, pair_label, in_split = self._segments
        if len(pair_label) < len(pair):
            weighted = torch.cat([per_sample, logits.T]) * share
            mean = weighted.new_zeros(len(weighted), len(pair_label)).index_add_(1, pair, weighted)
            voted = mean[2:].argmax(0).eq(pair_label)
            right_share = torch.where(pair_label >= 0, voted.to(loss.dtype), mean[1])
            by_client = in_split.means(torch.stack([mean[0], right_share]))
        return {name: Metrics(*found[name], *by_client[name]) for name in found}


@dataclass(frozen=True, eq=False)
class Segments:
    """Columns marked by split: ``mark [columns, 3]`` as 0/1 and how many of each."""

    mark: Tensor
    count: list[int]

    @classmethod
    def of(cls, part: Tensor, dtype: torch.dtype) -> Segments:
        """Mark columns by their split."""
        mark = torch.stack([part == int(split) for split in SPLITS], 1)
        return cls(mark.to(dtype), mark.sum(0).tolist())

    def means(self, values: Tensor) -> dict[str, list[float]]:
        """Means over each split of rows of values ``[2, columns]``, by its name; nan on an empty split."""
        totals = (values @ self.mark).T.tolist()
        return {
            split.name.lower(): [value / n if n else math.nan for value in total]
            for split, total, n in zip(SPLITS, totals, self.count, strict=True)
        }


def share_correct(graph: ClientGraph, logits: Tensor, part: Split = Split.TEST) -> Tensor:
    """Share of each client's samples of a split that the logits ``[S, c]`` predict, ``[N]``; nan where it has none."""
    rows = graph.mask(part)
    right = logits[rows].argmax(1).eq(graph.y[rows]).double()
    total = torch.bincount(graph.client[rows], right, minlength=graph.num_clients)
    return total / graph.counts(rows)
