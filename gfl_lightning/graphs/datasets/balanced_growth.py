"""A class-balanced set of clients whose induced subgraph is connected, found by growing it."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.arrays import Index

STARTS = 200


def grow_training_set(adjacency: csr_matrix, label: Index, size: int, rng: np.random.Generator) -> Index:
    """``size`` clients, equally many of each class up to one, that induce a connected subgraph.

    It is grown by :func:`connected_set`.
    """
    classes = np.unique(label)
    quota = np.array([size // len(classes) + (c < size % len(classes)) for c in range(len(classes))])
    place = np.searchsorted(classes, label)
    members = connected_set(adjacency, place, quota, rng)
    if members is not None:
        return members
    mean_degree = adjacency.nnz / adjacency.shape[0]
    possible = len(_possible_starts(adjacency, place, quota)) > 0
    raise InputError(
        f"degree must be high enough for {size} class-balanced training clients to form a connected subgraph, "
        f"got a graph of {adjacency.shape[0]} clients with mean degree {mean_degree:.3g} where "
        + ("no such set was found." if possible else "no connected component holds enough of each class.")
    )


def connected_set(
    adjacency: csr_matrix, label: Index, quota: Index, rng: np.random.Generator, starts: int = STARTS
) -> Index | None:
    """Clients that induce a connected subgraph, ``quota [classes]`` of each class; ``None`` where none was found.

    ``label [N]`` is a place in ``quota``, or −1 for clients that may not belong. From a random client the set takes a
    random neighbour of the class that lacks most. Where no neighbour of a lacking class is left, growth starts again
    elsewhere, at most ``starts`` times.
    """
    for start in rng.permutation(_possible_starts(adjacency, label, quota))[:starts]:
        members = _grow(adjacency, label, quota, int(start), rng)
        if members is not None:
            return members
    return None


def _possible_starts(adjacency: csr_matrix, label: Index, quota: Index) -> Index:
    """The clients in components that hold enough of each class."""
    _, component = connected_components(adjacency, directed=False)
    enough = np.ones(component.max() + 1, dtype=bool)
    for c, wanted in enumerate(quota):
        enough &= np.bincount(component[label == c], minlength=len(enough)) >= wanted
    return np.flatnonzero(enough[component] & (label >= 0))


def _grow(adjacency: csr_matrix, label: Index, quota: Index, start: int, rng: np.random.Generator) -> Index | None:
    lacking, class_of = quota.tolist(), label.tolist()
    indices, begins = adjacency.indices, adjacency.indptr.tolist()
    seen = {start}
    members: list[int] = []
    frontier: list[list[int]] = [[] for _ in lacking]
    frontier[class_of[start]].append(start)
    for _ in range(sum(lacking)):
        open_classes = [c for c, wanted in enumerate(lacking) if wanted and frontier[c]]
        if not open_classes:
            return None
        candidates = frontier[max(open_classes, key=lacking.__getitem__)]
        pick = int(rng.integers(len(candidates)))
        candidates[pick], candidates[-1] = candidates[-1], candidates[pick]
        node = candidates.pop()
        members.append(node)
        lacking[class_of[node]] -= 1
        for neighbour in indices[begins[node] : begins[node + 1]].tolist():
            if neighbour not in seen and class_of[neighbour] >= 0:
                seen.add(neighbour)
                frontier[class_of[neighbour]].append(neighbour)
    return np.sort(np.array(members))
