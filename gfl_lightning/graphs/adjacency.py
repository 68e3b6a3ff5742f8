"""Edge lists as scipy sparse matrices, for searches and spectra."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix


def adjacency_matrix(edges: NDArray[np.int64], N: int, weight: NDArray[np.float64] | None = None) -> csr_matrix:
    """A ``[N, N]`` with an entry (weight, or 1) for each directed edge of ``edges [2, edges]``."""
    values = np.ones(edges.shape[1]) if weight is None else weight
    return coo_matrix((values, edges), shape=(N, N)).tocsr()
