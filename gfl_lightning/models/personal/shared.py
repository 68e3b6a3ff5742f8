"""Nothing personal: one model for all."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.models.personal.personal import Personal


@dataclass(frozen=True)
class Shared(Personal):
    """g_k = 1 and no B_k: every client predicts by W̄ and its neighbours alone.

    >>> Shared().is_inert
    True
    """

    def features(self, x: Tensor) -> Tensor:
        """None."""
        return x[:, :0]

    def strengths(self, num_features: int) -> tuple[float, ...]:
        """None."""
        return ()

    @property
    def is_inert(self) -> bool:
        """Yes."""
        return True
