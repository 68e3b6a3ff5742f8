"""Permutation importance: how much worse predictions get when the values of one feature are dealt out anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.reports.gains import gain_over, loss_name

ENTRIES = 2**27  # of all permuted tables together


def importance(
    graph: ClientGraph, groups: Mapping[str, slice], predict: Callable[[ClientGraph], Tensor], seed: int = 0
) -> pd.DataFrame:
    """Rise of the test loss by feature with its interval over clients, the largest first.

    The values of a feature are permuted among the rows that are not shared, or among all rows where clients share
    them all: then what neighbours are told changes too. Nothing is trained anew. The table is empty where the data
    are too large for it, or where nobody names their features.

    Args:
        graph: the clients and their samples.
        groups: columns of x by the name of their feature.
        predict: class probabilities, or numbers, of every sample of a graph ``[S, c]``.
        seed: of the permutations.
    """
    test = graph.mask(Split.TEST)
    if not bool(test.any()) or graph.x.numel() * len(groups) > ENTRIES:
        groups = {}
    free = (~graph.shared).nonzero().flatten()
    rows = torch.arange(graph.num_samples) if not bool((test & ~graph.shared).any()) else free
    before = predict(graph) if groups else torch.empty(0)
    found = []
    for number, (name, columns) in enumerate(groups.items()):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed + number))
        x = graph.x.clone()
        x[rows, columns] = graph.x[rows[order], columns]
        found.append((name, gain_over(graph, before, predict(replace(graph, x=x)), test)))
    found.sort(key=lambda one: -one[1].mean)
    rise = f"rise of the {loss_name(graph)}"
    return pd.DataFrame({"feature": [name for name, _ in found], rise: [str(gain) for _, gain in found]})
