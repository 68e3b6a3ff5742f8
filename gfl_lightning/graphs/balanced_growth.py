"""A class-balanced set of clients whose induced subgraph is connected, found by growing it."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.csbm import Index

STARTS = 200


def grow_training_set(adjacency: csr_matrix, label: Index, size: int, rng: np.random.Generator) -> Index:
    """``size`` clients, equally many of each class up to one, that induce a connected subgraph.

    From a random client the set takes a random neighbour of the class that lacks most. Where no neighbour of a
    lacking class is left, growth starts again elsewhere, at most :data:`STARTS` times.
    """
    classes = np.unique(label)
    quota = np.array([size // len(classes) + (c < size % len(classes)) for c in range(len(classes))])
    _, component = connected_components(adjacency, directed=False)
    enough = np.ones(component.max() + 1, dtype=bool)
    for c, value in enumerate(classes):
        enough &= np.bincount(component[label == value], minlength=len(enough)) >= quota[c]
    starts = np.flatnonzero(enough[component])
    for start in rng.permutation(starts)[:STARTS]:
        members = _grow(adjacency, np.searchsorted(classes, label), quota, int(start), rng)
        if members is not None:
            return members
    mean_degree = adjacency.nnz / adjacency.shape[0]
    raise InputError(
        f"degree must be high enough for {size} class-balanced training clients to form a connected subgraph, "
        f"got a graph of {adjacency.shape[0]} clients with mean degree {mean_degree:.3g} where "
        + ("no such set was found." if len(starts) else "no connected component holds enough of each class.")
    )


def _grow(adjacency: csr_matrix, label: Index, quota: Index, start: int, rng: np.random.Generator) -> Index | None:
    lacking = quota.copy()
    seen = {start}
    members: list[int] = []
    frontier: list[list[int]] = [[] for _ in quota]
    frontier[label[start]].append(start)
    while lacking.any():
        open_classes = [c for c in np.flatnonzero(lacking) if frontier[c]]
        if not open_classes:
            return None
        candidates = frontier[max(open_classes, key=lambda c: lacking[c])]
        pick = int(rng.integers(len(candidates)))
        candidates[pick], candidates[-1] = candidates[-1], candidates[pick]
        node = candidates.pop()
        members.append(node)
        lacking[label[node]] -= 1
        for neighbour in adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]:
            if neighbour not in seen:
                seen.add(int(neighbour))
                frontier[label[neighbour]].append(int(neighbour))
    return np.sort(np.array(members))
