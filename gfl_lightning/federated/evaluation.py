"""Loss and accuracy of W̄ on each split, from the logits of all samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split

SPLITS = (Split.TRAIN, Split.VAL, Split.TEST)


@dataclass(frozen=True)
class Metrics:
    """Cross-entropy and accuracy on one split.

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
    def _in_split(self) -> Tensor:
        """Row i marks the samples of split i ``[3, samples]``."""
        part = self.graph.split[self._rows]
        return torch.stack([part == int(split) for split in SPLITS]).to(self.graph.x.dtype)

    @cached_property
    def _segments(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """For (split, client) pairs: pair of each sample, its share, label (−1 if several), marks of each split."""
        part, client = self.graph.split[self._rows].long(), self.graph.client[self._rows]
        pair_key, pair = torch.unique(part * self.graph.num_clients + client, return_inverse=True)
        share = 1 / torch.bincount(pair)[pair].to(self.graph.x.dtype)
        low = torch.full_like(pair_key, self.graph.num_classes).scatter_reduce_(0, pair, self._label, "amin")
        high = torch.full_like(pair_key, -1).scatter_reduce_(0, pair, self._label, "amax")
        pair_split = pair_key // self.graph.num_clients
        member = torch.stack([pair_split == int(split) for split in SPLITS]).to(self.graph.x.dtype)
        return pair, share, torch.where(low == high, low, -1), member

    def __call__(self, logits: Tensor) -> dict[str, Metrics]:
        """Metrics by split name (train, val, test) from logits of all samples ``[S, c]``."""
        logits = logits[self._rows]
        loss = torch.nn.functional.cross_entropy(logits, self._label, reduction="none")
        right = (logits.argmax(1) == self._label).to(loss.dtype)
        per_sample = torch.stack([loss, right], 1)
        found = _means(self._in_split, per_sample)
        by_client = found
        pair, share, pair_label, in_split = self._segments
        if len(pair_label) < len(pair):
            weighted = torch.cat([per_sample, logits], 1) * share[:, None]
            mean = weighted.new_zeros(len(pair_label), weighted.shape[1]).index_add_(0, pair, weighted)
            voted = (mean[:, 2:].argmax(1) == pair_label).to(loss.dtype)
            mean[:, 1] = torch.where(pair_label >= 0, voted, mean[:, 1])
            by_client = _means(in_split, mean[:, :2])
        values = torch.cat([found, by_client], 1).tolist()
        return {split.name.lower(): Metrics(*row) for split, row in zip(SPLITS, values, strict=True)}


def _means(mark: Tensor, values: Tensor) -> Tensor:
    """Means of the marked rows, ``[3, rows], [rows, 2] → [3, 2]``; 0/0 = nan where none is marked."""
    return (mark @ values).double() / mark.sum(1, keepdim=True).double()
