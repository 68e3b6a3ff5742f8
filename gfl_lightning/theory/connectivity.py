"""λ_max(B_N L†): how much the graph lets clients' gradients differ, one factor of the convergence bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, laplacian
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor
from torch_geometric.utils import subgraph

from gfl_lightning.checks import require
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.client_graph import ClientGraph

DENSE_LIMIT = 1000
LANCZOS_RESTARTS = 30


@dataclass(frozen=True)
class Connectivity:
    """λ_max(B_N L†) of a graph with N clients, where B_N = I/N − 11ᵀ/N² and L is the Laplacian D − A.

    On a connected graph it is 1/(N λ₂(L)); on a disconnected one it is infinite: the bound says nothing.
    """

    num_clients: int
    components: int
    lambda_2: float

    @property
    def lambda_max(self) -> float:
        """λ_max(B_N L†)."""
        if self.components > 1:
            return math.inf
        return 1 / (self.num_clients * self.lambda_2) if self.num_clients > 1 else 0.0

    def __str__(self) -> str:
        if self.components > 1:
            return (
                f"λ_max(B_N L†) is infinite: the {self.num_clients} clients form {self.components} components "
                "that share nothing"
            )
        return f"λ_max(B_N L†) = {self.lambda_max:.4g} ({self.num_clients} clients, λ₂ = {self.lambda_2:.4g})"


def connectivity(graph: ClientGraph, clients: Tensor | None = None) -> Connectivity:
    """Connectivity of the whole graph, or of the subgraph induced by chosen clients (numbers, or a mask ``[N]``).

    In DNC and SNC the graph that counts is that of ``graph.training_clients``.
    """
    edge_index, weight, N = graph.edge_index, graph.edge_weight, graph.num_clients
    if clients is not None:
        clients = torch.unique(clients.nonzero().flatten() if clients.dtype == torch.bool else clients)
        require(clients.numel() > 0, "clients", "name at least one client", [])
        low, high = int(clients.min()), int(clients.max())
        require(low >= 0 and high < N, "clients", f"lie in 0..{N - 1}", (low, high))
        edge_index, weight = subgraph(clients, edge_index, weight, relabel_nodes=True, num_nodes=N)
        N = clients.numel()
    values = None if weight is None else weight.double().cpu().numpy()
    adjacency = adjacency_matrix(edge_index.cpu().numpy(), N, values)
    components = connected_components(adjacency, directed=False, return_labels=False)
    return Connectivity(N, int(components), _lambda_2(adjacency) if components == 1 and N > 1 else 0.0)


def _lambda_2(adjacency: csr_matrix) -> float:
    """Second smallest eigenvalue of L = D − A: dense for small graphs, Lanczos (ARPACK) for large ones.

    Lanczos on L itself is quick on well-mixed graphs, where factorising L would fill it in; where it stalls
    (paths, grids, trees) the eigenvalues crowd at 0, the factorisation stays sparse, and shift-invert is quick.
    """
    L = laplacian(adjacency)
    N = L.shape[0]
    if N <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(L.toarray())[1])
    options = {"k": 2, "v0": np.cos(np.arange(N)), "return_eigenvectors": False}
    try:
        smallest = eigsh(L, which="SA", ncv=80, maxiter=LANCZOS_RESTARTS, **options)
    except ArpackNoConvergence:
        smallest = eigsh(L.tocsc(), sigma=-1 / N**2, which="LM", **options)
    return float(np.sort(smallest)[1])
