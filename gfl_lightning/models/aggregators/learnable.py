"""A polynomial whose coefficients are trained (GPR-GNN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gfl_lightning.models.aggregators.appnp import APPNP


@dataclass(frozen=True)
class LearnablePolynomial(APPNP):
    """γ starts at APPNP's coefficients and is trained as part of W.

    >>> LearnablePolynomial(M=10).hops
    11

    Args:
        alpha: teleport probability α of the start.
        M: propagation steps.
    """

    learnable: ClassVar[bool] = True
