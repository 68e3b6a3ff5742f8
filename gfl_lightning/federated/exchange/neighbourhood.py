"""Ã as training clients see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        own: what they weigh their own representation with ``[K]``: Ã_kk, unless they have a gate.
        rows: their Ã_kj with Ã_kk set to 0 ``[K, N]``, where these are few enough to keep.
        gate: g_k of each ``[K]``; ``None`` where all are 1.
    """

    A: Propagation
    clients: Tensor
    own: Tensor
    rows: Tensor | None
    gate: Tensor | None = None

    @classmethod
    def of(cls, A: Propagation, clients: Tensor) -> Neighbourhood:
        """The neighbourhood of some clients."""
        few = len(clients) * A.num_clients <= ROW_ENTRIES
        return cls(A, clients, A.diagonal(clients), rows_of_others(A, clients) if few else None)

    def take(self, chosen: Tensor) -> Neighbourhood:
        """The neighbourhood of some of the training clients, given by their places."""
        rows = None if self.rows is None else self.rows[chosen]
        gate = None if self.gate is None else self.gate[chosen]
        return Neighbourhood(self.A, self.clients[chosen], self.own[chosen], rows, gate)

    def gated(self, gate: Tensor) -> Neighbourhood:
        """g_k Ã_k + (1 − g_k) e_k for each client k, which has a gate g_k between its neighbours and itself."""
        rows = None if self.rows is None else self.rows * gate[:, None]
        return replace(self, own=gate * self.own + 1 - gate, rows=rows, gate=gate)

    def others(self, places: Tensor) -> Tensor:
        """Ã_kj with Ã_kk set to 0 for the clients at some places, gated, ``[places, N]``."""
        rows = rows_of_others(self.A, self.clients[places])
        return rows if self.gate is None else rows * self.gate[places, None]

    def gather(self, H: Tensor) -> Tensor:
        """Σ_{j≠k} Ã_kj H_j for the training clients, ``[N, m] → [K, m]``."""
        if self.rows is not None:
            return self.rows @ H
        mixed = self.A.apply(H)[self.clients]
        return (mixed if self.gate is None else mixed * self.gate[:, None]) - self._from_others * H[self.clients]

    def scatter(self, R: Tensor) -> Tensor:
        """Σ_{k≠j} Ã_kj R_k, what the training clients' R asks of each client j, ``[K, m] → [N, m]``."""
        if self.rows is not None:
            return self.rows.T @ R
        placed = R.new_zeros(self.A.num_clients, R.shape[1])
        placed[self.clients] = R if self.gate is None else R * self.gate[:, None]
        spread = self.A.apply(placed)
        spread[self.clients] -= self._from_others * R
        return spread

    @property
    def _from_others(self) -> Tensor:
        """g_k Ã_kk ``[K, 1]``: what Ã would give a client of itself, which is not to count among the others."""
        return (self.own if self.gate is None else self.own - 1 + self.gate)[:, None]


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
