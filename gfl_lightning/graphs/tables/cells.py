"""A search for the nearest spots by matrix products, over cells in the order of how far off they can be.

A cell of points meets the cells of spots in the order of the distance of their boxes, and stops where the next box is
farther than what every point has found: next to nothing where columns go together, all others where they do not, and
then as blocks of a product that stay in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.graphs.arrays import Array, Index

CELL, CELLS_AT_ONCE, GROUP = 256, 8, 32


@dataclass(frozen=True, eq=False)
class Cells:
    """Spots in cells of at most ``CELL``.

    Args:
        rows: numbers of each cell's spots.
        low, high: the corners of the boxes around them ``[cells, p]``.
        places: where the spots of each cell are.
    """

    rows: list[Index]
    low: Array
    high: Array
    places: list[Tensor]

    @classmethod
    def of(cls, spots: Array) -> Cells:
        """Halved across the widest column until they are small."""
        rows, waiting = [], [np.arange(len(spots))]
        while waiting:
            some = waiting.pop()
            if len(some) <= CELL:
                rows.append(some)
                continue
            widest = np.ptp(spots[some], axis=0).argmax()
            waiting += np.array_split(some[np.argpartition(spots[some, widest], len(some) // 2)], 2)
        low, high = (np.stack([side(spots[some], axis=0) for some in rows]) for side in (np.min, np.max))
        return cls(rows, low, high, [torch.from_numpy(spots[some]) for some in rows])

    def nearest(self, asked: Array, m: int) -> Index:
        """The m spots nearest to each of the points of a cell ``[n, m]``, in no order."""
        gap = np.maximum(0, np.maximum(self.low - asked.max(0), asked.min(0) - self.high))
        apart = (gap**2).sum(1)
        order = apart.argsort(kind="stable")
        numbers = torch.from_numpy(np.concatenate([self.rows[cell] for cell in order]))
        centre = torch.from_numpy(asked.mean(0))
        x = torch.from_numpy(asked) - centre
        own = x.square().sum(1)
        best, place = x.new_full((len(x), m), torch.inf), torch.zeros(len(x), m, dtype=torch.int64)
        done, width, before = 0, -(-m // (CELL // 2)), 0
        while done < len(order) and apart[order[done]] <= float((best.amax(1) + own).max()) * (1 + 1e-9):
            y = torch.cat([self.places[cell] for cell in order[done : done + width]]) - centre
            best, place = _closer(best, place, x, y, before)
            before += len(y)
            done, width = done + width, min(2 * width, CELLS_AT_ONCE)
        return numbers[place].numpy()


def _closer(best: Tensor, place: Tensor, x: Tensor, y: Tensor, before: int) -> tuple[Tensor, Tensor]:
    """The least of ‖y‖² − 2 xᵀy ``[n, m]`` and their places, once more points y are seen.

    Only those groups of the product are looked into whose least is among them.
    """
    (n, m), padding = best.shape, -len(y) % GROUP
    norm = F.pad(y.square().sum(1), (0, padding), value=torch.inf)
    product = torch.addmm(norm, x, F.pad(y, (0, 0, 0, padding)).T, alpha=-2).view(n, -1, GROUP)
    limit = best.amax(1)
    row, group = (product.amin(2) < limit[:, None]).nonzero(as_tuple=True)
    inside = product[row, group]
    which, member = (inside < limit[row, None]).nonzero(as_tuple=True)
    row, column = row[which], group[which] * GROUP + member
    count = row.bincount(minlength=n)
    rank = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
    wide = int(count.max())
    more = best.new_full((n, wide), torch.inf).index_put_((row, rank), inside[which, member])
    at = place.new_zeros(n, wide).index_put_((row, rank), before + column)
    best, kept = torch.cat([best, more], 1).topk(m, largest=False, sorted=False)
    return best, torch.cat([place, at], 1).gather(1, kept)
