"""Rows of the sample table arranged by the clients that own them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Ragged:
    """Some rows of the sample table arranged by client: K clients, n being the most rows that one of them has.

    Args:
        clients: the clients that have any ``[K]``, ascending.
        counts: how many ``[K]``.
        place: positions in the given list of rows ``[K, n]``; past a client's count its first one is repeated.
        present: which places are real ``[K, n]``.
    """

    clients: Tensor
    counts: Tensor
    place: Tensor
    present: Tensor

    @classmethod
    def of(cls, owner: Tensor) -> Ragged:
        """Arrange a list of rows by its column of owners."""
        order = torch.argsort(owner, stable=True)
        clients, counts = torch.unique_consecutive(owner[order], return_counts=True)
        column = torch.arange(int(counts.max()), device=owner.device)
        present = column < counts[:, None]
        start = counts.cumsum(0) - counts
        return cls(clients, counts, order[start[:, None] + torch.where(present, column, 0)], present)
