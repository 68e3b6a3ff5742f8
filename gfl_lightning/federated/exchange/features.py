"""The sample table X as an operator: sparse where it is worth it, dense elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.graphs.propagation import compressed_rows

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
        return cls(x, compressed_rows(x), compressed_rows(x.T))

    def times(self, W: Tensor) -> Tensor:
        """X Wᵀ, ``[S, m]`` for W ``[m, d]``; the result does not depend on how W lies in memory."""
        return (self.x if self.rows is None else self.rows) @ W.T.contiguous()

    def transposed_times(self, D: Tensor) -> Tensor:
        """Dᵀ X, ``[m, d]`` for D ``[S, m]``, laid out by columns as :meth:`times` wants it."""
        return ((self.x.T if self.columns is None else self.columns) @ D).T
