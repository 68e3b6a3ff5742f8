"""How W̄ scores at the sites: each reports sums over its own samples, and the server adds them up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.engine.evaluation import SPLITS, ClassMetrics, Evaluator
from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.graphs.client_graph import ClientGraph

COLUMNS = 6


@dataclass(frozen=True, eq=False)
class Evaluation(Message):
    """Site to server: for each split (train, val, test) the number of samples and of clients, and sums of metrics.

    ``sums [3, 6]``: samples, Σ loss, Σ right; clients, Σ client loss, Σ client accuracy.
    """

    sums: Tensor


def evaluated(graph: ClientGraph, logits: Tensor, splits: Iterable[str]) -> Evaluation:
    """The sums of a site from logits of all its samples ``[S, c]``, for some of the splits."""
    found, wanted = Evaluator(graph)(logits), set(splits)
    sums = torch.zeros(len(SPLITS), COLUMNS, dtype=torch.float64)
    for row, split in enumerate(SPLITS):
        mask = graph.mask(split)
        samples, clients = int(mask.sum()), int((graph.counts(mask) > 0).sum())
        if samples and split.name.lower() in wanted:
            means = found[split.name.lower()]
            assert isinstance(means, ClassMetrics)
            parts = [1.0, means.loss, means.accuracy], [1.0, means.client_loss, means.client_accuracy]
            sums[row, :3] = samples * torch.tensor(parts[0], dtype=torch.float64)
            sums[row, 3:] = clients * torch.tensor(parts[1], dtype=torch.float64)
    return Evaluation(sums)


def together(evaluations: Iterable[Evaluation]) -> dict[str, ClassMetrics]:
    """Metrics over all sites, by split; nan where there is no sample.

    >>> one = Evaluation(torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.5, 0.5]] * 3).double())
    >>> together([one, one])["val"]
    ClassMetrics(loss=0.5, client_loss=0.5, accuracy=0.5, client_accuracy=0.5)
    """
    total = sum((one.sums for one in evaluations), torch.zeros(len(SPLITS), COLUMNS, dtype=torch.float64))
    found = {}
    for split, row in zip(SPLITS, total.tolist(), strict=True):
        samples, loss, right, clients, client_loss, client_right = row
        found[split.name.lower()] = ClassMetrics(
            loss=loss / samples if samples else math.nan,
            client_loss=client_loss / clients if clients else math.nan,
            accuracy=right / samples if samples else math.nan,
            client_accuracy=client_right / clients if clients else math.nan,
        )
    return found
