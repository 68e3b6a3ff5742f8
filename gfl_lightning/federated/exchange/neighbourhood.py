"""Ã as training clients see it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.graphs.propagation import Propagation, hop_columns

ROW_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Ã for K training clients; sums over j ≠ k leave a client's own representation out.

    Args:
        A: the propagation Ã.
        clients: the training clients ``[K]``.
        own: their Ã_kk ``[K]``.
        rows: their Ã_kj with Ã_kk set to 0 ``[K, N]``, where these are few enough to keep.
    """

    A: Propagation
    clients: Tensor
    own: Tensor
    rows: Tensor | None

    @classmethod
    def of(cls, A: Propagation, clients: Tensor) -> Neighbourhood:
        """The neighbourhood of some clients."""
        few = len(clients) * A.num_clients <= ROW_ENTRIES
        return cls(A, clients, A.diagonal(clients), rows_of_others(A, clients) if few else None)

    def take(self, chosen: Tensor) -> Neighbourhood:
        """The neighbourhood of some of the training clients, given by their places."""
        rows = None if self.rows is None else self.rows[chosen]
        return Neighbourhood(self.A, self.clients[chosen], self.own[chosen], rows)

    def gather(self, H: Tensor) -> Tensor:
        """Σ_{j≠k} Ã_kj H_j for the training clients, ``[N, m] → [K, m]``."""
        if self.rows is not None:
            return self.rows @ H
        return self.A.apply(H)[self.clients] - self.own[:, None] * H[self.clients]

    def scatter(self, R: Tensor) -> Tensor:
        """Σ_{k≠j} Ã_kj R_k, what the training clients' R asks of each client j, ``[K, m] → [N, m]``."""
        if self.rows is not None:
            return self.rows.T @ R
        placed = R.new_zeros(self.A.num_clients, R.shape[1])
        placed[self.clients] = R
        spread = self.A.apply(placed)
        spread[self.clients] -= self.own[:, None] * R
        return spread


def rows_of_others(A: Propagation, clients: Tensor) -> Tensor:
    """Ã_kj with Ã_kk set to 0, ``[clients, N]``."""
    rows = A.rows(clients)
    rows[torch.arange(len(clients), device=clients.device), clients] = 0
    return rows


def rows_by_hop(A: Propagation, clients: Tensor, learnable: bool) -> tuple[Tensor, Tensor]:
    """Ã, or each power of P where the aggregator is learnable, for some clients.

    The entries of others with j = k set to 0 ``[clients, L, N]``, and those of the clients themselves ``[clients, L]``.
    """
    if not learnable:
        return rows_of_others(A, clients)[:, None], A.diagonal(clients)[:, None]
    k = torch.arange(len(clients), device=clients.device)
    rows = hop_columns(A.P, clients, len(A.gamma) - 1).permute(2, 0, 1).contiguous()
    own = rows[k, :, clients]
    rows[k, :, clients] = 0
    return rows, own
