"""Zachary's karate club: the smallest real client graph, shipped with PyG."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch_geometric import datasets

from gfl_lightning.checks import require_count
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet

VAL_CLIENTS = 10


@dataclass(frozen=True)
class KarateClub(DataSet):
    """34 members, every one a client, in 4 communities with one training client each; 10 validate, 20 test.

    >>> KarateClub().graph  # doctest: +NORMALIZE_WHITESPACE
    ClientGraph(34 clients, 78 edges, 34 samples (1 per client), 34 features, 4 classes; train 4, val 10, test 20;
    4 clients train)

    Args:
        seed: of the split into validation and test clients.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        require_count("seed", self.seed, 0)

    def make(self) -> ClientGraph:
        """PyG's graph, with validation clients drawn from those without a training label."""
        data = datasets.KarateClub()[0]
        rest = torch.nonzero(~data.train_mask).flatten().numpy()
        chosen = np.random.default_rng(self.seed).choice(rest, VAL_CLIENTS, replace=False)
        data.val_mask = torch.zeros_like(data.train_mask)
        data.val_mask[torch.from_numpy(chosen)] = True
        data.test_mask = ~(data.train_mask | data.val_mask)
        return ClientGraph.from_data(data)

    def repeated(self, repetition: int) -> KarateClub:
        """The split of a later seed."""
        return replace(self, seed=self.seed + repetition)
