"""The sample table X as an operator: sparse where it is worth it, dense elsewhere."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import Tensor

SPARSE_BELOW = 0.1


@dataclass(frozen=True, eq=False)
class Features:
    """X ``[S, d]`` and, where fewer than a tenth of its entries are not zero, X and Xᵀ in compressed rows."""

    x: Tensor
    rows: Tensor | None
    columns: Tensor | None

    @classmethod
    def of(cls, x: Tensor) -> Features:
        """Choose by density."""
        if int(x.count_nonzero()) > SPARSE_BELOW * x.numel():
            return cls(x, None, None)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")
            return cls(x, x.to_sparse_csr(), x.T.contiguous().to_sparse_csr())

    def times(self, W: Tensor) -> Tensor:
        """X Wᵀ, ``[S, m]`` for W ``[m, d]``."""
        return self.x @ W.T if self.rows is None else self.rows @ W.T

    def transposed_times(self, D: Tensor) -> Tensor:
        """Dᵀ X, ``[m, d]`` for D ``[S, m]``."""
        return D.T @ self.x if self.columns is None else (self.columns @ D).T
