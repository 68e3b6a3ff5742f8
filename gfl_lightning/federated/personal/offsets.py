"""What personal terms add to the outputs of a client's training samples while it makes its local steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NoOffset:
    """Nothing is added."""

    def take(self, places: Tensor) -> NoOffset:
        """The same for some of the clients."""
        return self

    def onto(self, C: Tensor, place: Tensor | None = None) -> Tensor:
        """C ``[K, 1, c]`` as it is."""
        return C


@dataclass(frozen=True, eq=False)
class Offset(NoOffset):
    """B_k φ(x_{k,s}) of the training samples ``[K, n, c]``, held fixed during a round."""

    value: Tensor

    def take(self, places: Tensor) -> Offset:
        """The same for some of the clients."""
        return Offset(self.value[places])

    def onto(self, C: Tensor, place: Tensor | None = None) -> Tensor:
        """C_k + B_k φ(x_{k,s}) ``[K, n, c]``, of all samples or of those at the places ``[K, b]``."""
        if place is None:
            return C + self.value
        return C + self.value[torch.arange(len(place), device=place.device)[:, None], place]
