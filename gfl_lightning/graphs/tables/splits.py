"""Splits for tables that bring none: seeded, and with connected training clients where there are such."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.balanced_growth import connected_set

GROWTH_STEPS = 2_000_000


def split_clients(
    label: Index, adjacency: csr_matrix, fractions: tuple[float, ...], rng: np.random.Generator
) -> tuple[Index, bool]:
    """Split of each client ``[N]`` from its class (−1: unknown), and whether the training clients are connected.

    Training clients are a connected set with the classes' shares where one is found, else drawn by class alone.
    """
    split = np.full(len(label), int(Split.NONE))
    labelled = np.flatnonzero(label >= 0)
    order = labelled[_interleaved(label[labelled], np.zeros(len(labelled), dtype=np.int64), rng)]
    train, val = _bounds(np.array([len(order)]), fractions, rng)
    quota = np.bincount(label[order[: train[0]]], minlength=int(label.max(initial=0)) + 1)
    if train[0]:
        quota = np.maximum(quota, np.minimum(np.bincount(label[labelled], minlength=len(quota)), 1))
        if fractions[1] > 0 and quota.sum() == len(order) and quota.max() > 1:
            quota[quota.argmax()] -= 1
    starts = int(np.clip(GROWTH_STEPS // max(1, len(label)), 2, 200))
    grown = connected_set(adjacency, label, quota, rng, starts) if train[0] else order[:0]
    chosen = order[_rank(label[order]) < quota[label[order]]] if grown is None else grown
    split[chosen] = int(Split.TRAIN)
    rest = order[split[order] == int(Split.NONE)]
    of_val = max(int(val[0] - train[0]), min(1, len(rest)) if fractions[1] > 0 else 0)
    split[rest[:of_val]] = int(Split.VAL)
    split[rest[of_val:]] = int(Split.TEST) if fractions[2] > 0 else int(Split.VAL)
    return split, grown is not None


def split_rows(client: Index, label: Index, fractions: tuple[float, ...], rng: np.random.Generator) -> Index:
    """Split of each labelled row ``[S]``, at random within its client.

    Not stratified by label: the shares of labels among a client's test rows would be those among its training rows, as
    no new rows' are, and whoever learns them by heart would look better than he is.

    Of n labelled rows of a client, ⌊fraction n + u⌋ train, with one u in [0, 1) per client and at least one row; a
    class that no client would train on gives one row of a random client.
    """
    split = np.full(len(label), int(Split.NONE))
    rows = np.flatnonzero(label >= 0)
    if not len(rows):
        return split
    order = rows[_interleaved(np.zeros(len(rows), dtype=np.int64), client[rows], rng)]
    _, start, count = np.unique(client[order], return_index=True, return_counts=True)
    train, val = _bounds(count, fractions, rng)
    place = np.arange(len(order)) - np.repeat(start, count)
    part = np.where(place < np.repeat(train, count), Split.TRAIN, Split.VAL)
    split[order] = np.where(place < np.repeat(val, count), part, Split.TEST)
    if fractions[0] > 0:
        lacking = np.setdiff1d(label[rows], label[split == Split.TRAIN])
        for code in lacking:
            split[rng.choice(np.flatnonzero(label == code))] = int(Split.TRAIN)
    if fractions[1] > 0 and not (split == Split.VAL).any():
        _give_one_to_validation(split, label, rng)
    return split


def _give_one_to_validation(split: Index, label: Index, rng: np.random.Generator) -> None:
    """Move one row to validation: a test row if there is one, else a training row of the most frequent class."""
    spare = np.flatnonzero(split == Split.TEST)
    if not len(spare):
        trained = split == Split.TRAIN
        counts = np.bincount(label[trained])
        spare = np.flatnonzero(trained & (label == counts.argmax())) if counts.max() > 1 else spare
    if len(spare):
        split[rng.choice(spare)] = int(Split.VAL)


def _bounds(count: Index, fractions: tuple[float, ...], rng: np.random.Generator) -> tuple[Index, Index]:
    """Where training and validation end among n ordered samples, for each n in ``count``."""
    u: Array = rng.random(len(count))
    train = np.floor(fractions[0] * count + u).astype(np.int64)
    train = np.clip(train, 1 if fractions[0] > 0 else 0, count if fractions[0] > 0 else 0)
    end = np.floor((fractions[0] + fractions[1]) * count + u).astype(np.int64)
    return train, np.where(fractions[2] > 0, np.clip(end, train, count), count)


def _interleaved(label: Index, client: Index, rng: np.random.Generator) -> Index:
    """An order by client in which any first samples of a client hold its labels in their shares, up to one each.

    Sample r of the n that a client has of a label stands at (r + u) / n, u being drawn for each client and label.
    """
    shuffled = rng.permutation(len(label))
    key = client[shuffled] * (int(label.max(initial=0)) + 1) + label[shuffled]
    groups, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    position = (_rank(key) + rng.random(len(groups))[inverse]) / count[inverse]
    return shuffled[np.lexsort((position, client[shuffled]))]


def _rank(key: Index) -> Index:
    """How many equal keys stand before each one."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(key) else np.zeros(0, dtype=np.int64)
    size = np.diff(np.r_[begins, len(key)])
    rank = np.empty(len(key), dtype=np.int64)
    rank[order] = np.arange(len(key)) - np.repeat(begins, size)
    return rank
