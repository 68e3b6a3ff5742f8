"""Which points are nearest to which, exactly, in any number of columns.

Spots are searched by a k-d tree in few columns and by matrix products in many; both say the same. Ties go to the spots
that follow in number, around and around, and on a spot to the points that do: a crowd on one spot becomes a ring
instead of a star.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree

from gfl_lightning.graphs.arrays import Array, Index
from gfl_lightning.graphs.tables.cells import Cells
from gfl_lightning.graphs.tables.spots import Spots

TREE_COLUMNS = 8  # beyond, a tree looks at almost every spot and products are faster
SPARE = 8  # more spots than are asked for, which tell whether the last of them is in a tie
TIE = 1e-9  # of a squared distance
ROWS, COLUMNS = 256, 2048


def nearest(among: Array, points: Array, k: int) -> Index:
    """Numbers of the k points of ``among [N, p]`` that are nearest to each of ``points [n, p]``, ``[n, k]``.

    >>> nearest(np.array([[0.0], [5.0], [6.0]]), np.array([[4.0]]), 2).tolist()
    [[1, 2]]
    """
    spots, asked = Spots.of(among), Spots.of(points)
    start = np.zeros(len(points), dtype=np.int64)
    found = _nearest_spots(spots.place, asked.place, min(k, len(spots.place)), start[: len(asked.place)])
    return spots.members(found[asked.spot], start, k)


def nearest_others(points: Array, k: int) -> Index:
    """Numbers of the k other points that are nearest to each ``[N, k]``; k is below N.

    >>> nearest_others(np.array([[3.0], [3.0], [3.0], [9.0]]), 1).tolist()
    [[1], [2], [0], [0]]
    """
    spots, own = Spots.of(points), np.arange(len(points))
    U = len(spots.place)
    found = _nearest_spots(spots.place, spots.place, min(k + 1, U), np.arange(U))
    listed = spots.members(found[spots.spot], own + 1, k + 1)
    others = listed != own[:, None]
    others[others.all(1), -1] = False
    return listed[others].reshape(len(points), k)


def _nearest_spots(base: Array, asked: Array, k: int, start: Index) -> Index:
    """Spots by distance, those that tie from number ``start`` on, around ``[n, k]``."""
    U, m = len(base), min(k + SPARE, len(base))
    found, tied = np.empty((len(asked), k), dtype=np.int64), []
    for rows, some in _candidates(base, asked, m):
        square = _squares(base, asked, rows, some)
        order = square.argsort(1, kind="stable")
        listed, square = np.take_along_axis(some, order, 1), np.take_along_axis(square, order, 1)
        farther = np.diff(square, axis=1) > TIE * square[:, 1:]
        tier = np.concatenate([np.zeros((len(rows), 1), np.int64), farther.cumsum(1)], 1)
        order = np.lexsort(((listed - start[rows, None]) % U, tier))[:, :k]
        found[rows] = np.take_along_axis(listed, order, 1)
        if m < U:
            tied.append(rows[tier[:, k - 1] == tier[:, -1]])
    for rows in _in_order(tied, start):
        found[rows] = _of_ties(base, asked[rows], found[rows], start[rows])
    return found


def _candidates(base: Array, asked: Array, m: int) -> list[tuple[Index, Index]]:
    """Some of the asking points, and m spots nearest to each, in no order."""
    if not len(asked):
        return []
    if base.shape[1] > TREE_COLUMNS:
        cells = Cells.of(base)
        return [(rows, cells.nearest(asked[rows], m)) for rows in Cells.of(asked).rows]
    found = np.asarray(cKDTree(base).query(asked, m)[1], dtype=np.int64).reshape(len(asked), m)
    blocks = np.array_split(np.arange(len(asked)), -(-len(asked) // ROWS))
    return [(rows, found[rows]) for rows in blocks]


def _squares(base: Array, asked: Array, row: Index, listed: Index) -> Array:
    """Squared distances between points ``row [n]`` and spots ``listed [n, m]``."""
    return ((base[listed] - asked[row][:, None]) ** 2).sum(2)


def _in_order(tied: list[Index], start: Index) -> list[Index]:
    """Rows in a tie, a block of those that start close together at a time."""
    rows = np.concatenate([*tied, np.empty(0, dtype=np.int64)])
    rows = rows[start[rows].argsort(kind="stable")]
    return [rows[at : at + ROWS] for at in range(0, len(rows), ROWS)]


def _of_ties(base: Array, asked: Array, found: Index, start: Index) -> Index:
    """Those found, the last ones in a tie with more spots than were found: spots are seen in order until all have k.

    Column t is spot t mod U, which row i meets once, at ``start[i] <= t < start[i] + U``.
    """
    U, (n, k) = len(base), found.shape
    everyone, centre = np.arange(n), asked.mean(0)
    last = _squares(base, asked, everyone, found[:, -1:])[:, 0]
    missing = (_squares(base, asked, everyone, found) >= last[:, None] * (1 - TIE)).sum(1)
    x = torch.from_numpy(asked - centre)
    found, t, end = found.copy(), int(start[0]), int(start[-1]) + U
    while missing.any() and t < end:
        column = np.arange(t, min(t + COLUMNS, end))
        y = torch.from_numpy(base[column % U] - centre)
        norm = y.square().sum(1)
        product = torch.addmm(norm, x, y.T, alpha=-2).numpy()
        rounding = 1e-12 * float(norm.max() + x.square().sum(1).max())
        near = product <= (last * (1 + TIE) - x.square().sum(1).numpy() + rounding)[:, None]
        near &= (column >= start[:, None]) & (column < start[:, None] + U) & (missing > 0)[:, None]
        row, place = near.nonzero()
        square = ((base[column[place] % U] - asked[row]) ** 2).sum(1)
        ties = np.abs(square - last[row]) <= TIE * last[row]
        row, place = row[ties], place[ties]
        count = np.bincount(row, minlength=n)
        rank = np.arange(len(row)) - (count.cumsum() - count)[row]
        taken = rank < missing[row]
        row, place, rank = row[taken], place[taken], rank[taken]
        found[row, k - missing[row] + rank] = column[place] % U
        missing -= np.minimum(count, missing)
        t += COLUMNS
    return found
