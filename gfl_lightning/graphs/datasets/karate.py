"""Zachary's karate club: the smallest real client graph, shipped with PyG."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.datasets import KarateClub

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph

VAL_CLIENTS = 10


def karate(seed: int = 0) -> ClientGraph:
    """34 members, 4 communities, one labelled member each; ``seed`` draws 10 validation clients, 20 test."""
    require(seed >= 0, "seed", "be at least 0", seed)
    data = KarateClub()[0]
    rest = torch.nonzero(~data.train_mask).flatten().numpy()
    chosen = np.random.default_rng(seed).choice(rest, VAL_CLIENTS, replace=False)
    data.val_mask = torch.zeros_like(data.train_mask)
    data.val_mask[torch.from_numpy(chosen)] = True
    data.test_mask = ~(data.train_mask | data.val_mask)
    return ClientGraph.from_data(data)
