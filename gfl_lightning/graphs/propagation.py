"""Propagation over the client graph: polynomials Ã = Σ_i γ_i P^i of P = D̂^{-1/2}(A+I)D̂^{-1/2}.

The aggregators of `models` differ in their coefficients γ alone. P is sparse and symmetric, and Ã is never formed
unless it is asked for.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph

DENSE_LIMIT = 5000
CHUNK_ENTRIES = 2**25


def normalized_adjacency(graph: ClientGraph, dtype: torch.dtype = torch.float32) -> Tensor:
    """P = D̂^{-1/2}(A+I)D̂^{-1/2} as a sparse CSR tensor ``[N, N]``; A holds the edge weights where there are any."""
    return normalized_edges(graph.edge_index, graph.edge_weight, graph.num_clients, dtype)


def normalized_edges(edge_index: Tensor, edge_weight: Tensor | None, N: int, dtype: torch.dtype) -> Tensor:
    """The same from the edges of N clients in both directions."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: PLC0415  # seconds of imports

    weight = None if edge_weight is None else edge_weight.double()
    index, value = gcn_norm(edge_index, weight, N, add_self_loops=True, dtype=torch.float64)
    return compressed_rows(torch.sparse_coo_tensor(index, value.to(dtype), (N, N), check_invariants=True).coalesce())


def compressed_rows(matrix: Tensor) -> Tensor:
    """A dense or sparse COO matrix in compressed rows, with the 32-bit indices that CPU kernels want."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        csr = matrix.to_sparse_csr()
        crow, col = csr.crow_indices().int(), csr.col_indices().int()
        return torch.sparse_csr_tensor(crow, col, csr.values(), csr.shape, check_invariants=True)


def hops(P: Tensor, H: Tensor, M: int) -> Tensor:
    """P^0 H, P^1 H, …, P^M H stacked, ``[M+1, N, columns]``."""
    sequence = [H]
    for _ in range(M):
        sequence.append(P @ sequence[-1])
    return torch.stack(sequence)


def hop_columns(P: Tensor, clients: Tensor, M: int) -> Tensor:
    """Columns of P^0, …, P^M of chosen clients, ``[M+1, N, clients]``."""
    return hops(P, _one_hot(P, clients), M)


def hop_diagonals(P: Tensor, clients: Tensor, M: int) -> Tensor:
    """(P^i)_kk for i = 0 … M, ``[clients, M+1]``, never holding more than a chunk of columns.

    P is symmetric, so (P^i)_kk = ⟨P^a e_k, P^b e_k⟩ with a + b = i: half the products suffice.
    """
    half = (M + 1) // 2
    size = max(1, CHUNK_ENTRIES // (P.shape[0] * (half + 1)))
    parts = []
    for part in clients.split(size):
        column = hop_columns(P, part, half)
        parts.append(torch.stack([(column[i // 2] * column[i - i // 2]).sum(0) for i in range(M + 1)], 1))
    return torch.cat(parts)


def _one_hot(P: Tensor, clients: Tensor) -> Tensor:
    one_hot = torch.zeros(P.shape[0], len(clients), dtype=P.dtype, device=P.device)
    one_hot[clients, torch.arange(len(clients), device=P.device)] = 1
    return one_hot


@dataclass(frozen=True, eq=False)
class Propagation:
    """Ã = Σ_i γ_i P^i for fixed coefficients γ ``[M+1]``.

    >>> P = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    >>> Propagation(P, gamma=torch.tensor([0.1, 0.9])).dense()
    tensor([[0.5500, 0.4500],
            [0.4500, 0.5500]])

    Args:
        P: D̂^{-1/2}(A+I)D̂^{-1/2}, dense or sparse ``[N, N]``.
        gamma: the coefficients.
    """

    P: Tensor
    gamma: Tensor

    def __post_init__(self) -> None:
        require(self.gamma.ndim == 1 and len(self.gamma) >= 1, "gamma", "be a vector", list(self.gamma.shape))
        require(bool(torch.isfinite(self.gamma).all()), "gamma", "be finite", self.gamma.tolist())

    @property
    def num_clients(self) -> int:
        """N."""
        return self.P.shape[0]

    @cached_property
    def is_identity(self) -> bool:
        """Whether Ã = γ_0 I, so that no client sees another."""
        return not bool(self.gamma[1:].any())

    def apply(self, H: Tensor) -> Tensor:
        """Z = Ã H, ``[N, columns]``, by M sparse products (Horner's scheme)."""
        *lower, top = self.gamma.tolist()
        Z = top * H
        for coefficient in reversed(lower):
            Z = torch.add(self.P @ Z, H, alpha=coefficient)
        return Z

    def rows(self, clients: Tensor) -> Tensor:
        """Rows Ã_k of chosen clients, ``[clients, N]``; Ã is symmetric, so they are Ã's columns."""
        rows = [self._columns(part).T for part in clients.split(self._chunk)]
        return torch.cat(rows)

    def diagonal(self, clients: Tensor | None = None) -> Tensor:
        """Ã_kk of chosen clients (default all)."""
        if clients is None:
            clients = torch.arange(self.num_clients, device=self.P.device)
        if self.is_identity:
            return self.gamma[0].to(self.P).expand(len(clients)).clone()
        return hop_diagonals(self.P, clients, len(self.gamma) - 1) @ self.gamma.to(self.P.dtype)

    def dense(self) -> Tensor:
        """Ã itself, ``[N, N]``, for small N only."""
        require(
            self.num_clients <= DENSE_LIMIT,
            "num_clients",
            f"be at most {DENSE_LIMIT} for a dense Ã",
            self.num_clients,
        )
        return self._columns(torch.arange(self.num_clients, device=self.P.device))

    @property
    def _chunk(self) -> int:
        return max(1, CHUNK_ENTRIES // self.num_clients)

    def _columns(self, clients: Tensor) -> Tensor:
        return self.apply(_one_hot(self.P, clients))


def propagation(graph: ClientGraph, gamma: Tensor, dtype: torch.dtype = torch.float32) -> Propagation:
    """Ã of a client graph for given coefficients, e.g. ``propagation(graph, APPNP().gamma)``."""
    return Propagation(normalized_adjacency(graph, dtype), gamma.to(graph.x.device))
