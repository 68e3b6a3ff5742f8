"""Points by where they are: those on one spot are searched for once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gfl_lightning.graphs.arrays import Array, Index


@dataclass(frozen=True, eq=False)
class Spots:
    """The spots of some points.

    >>> Spots.of(np.array([[7.0], [2.0], [7.0]])).spot.tolist()
    [0, 1, 0]

    Args:
        place: of every spot ``[U, p]``, numbered by their first points.
        spot: of every point ``[N]``.
    """

    place: Array
    spot: Index

    @classmethod
    def of(cls, points: Array) -> Spots:
        """Points on the same spot together."""
        whole = np.ascontiguousarray(points, dtype=np.float64) + 0.0  # −0 is 0
        rows = whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel()
        _, first, spot = np.unique(rows, return_index=True, return_inverse=True)
        order = first.argsort()
        return cls(whole[first[order]], order.argsort()[spot.reshape(-1)])

    @cached_property
    def _sorted(self) -> tuple[Index, Index]:
        """Points by spot and then number, and where each spot begins among them and ends."""
        return self.spot.argsort(kind="stable"), np.concatenate([[0], np.bincount(self.spot).cumsum()])

    def members(self, found: Index, first: Index, k: int) -> Index:
        """The first k points on spots ``found [n, m]``, of each spot from number ``first [n]`` on, around."""
        points, bounds = self._sorted
        key = self.spot[points] * (len(points) + 1) + points
        begin, size = bounds[found], np.diff(bounds)[found]
        start = np.searchsorted(key, found * (len(points) + 1) + first[:, None]) - begin
        before = np.concatenate([np.zeros((len(found), 1), np.int64), size.cumsum(1)], 1)
        taken = np.empty((len(found), k), dtype=np.int64)
        for place in range(k):
            which = (before <= place).sum(1)[:, None] - 1
            b, s, n, passed = (np.take_along_axis(a, which, 1)[:, 0] for a in (begin, start, size, before))
            taken[:, place] = points[b + (s + place - passed) % n]
        return taken
