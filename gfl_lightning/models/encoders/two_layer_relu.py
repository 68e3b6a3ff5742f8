"""The algebra of h = W2 relu(W1 x) that makes a round cheap: its Jacobian by factors, norms, sizes.

With z = W1 x, a = relu(z) and s = 1{z > 0}, the Jacobian of one sample is ∂h_o/∂W2 = e_o aᵀ and
∂h_o/∂W1[m,:] = W2[o,m] s_m x: the activation a, the pattern s and the sample determine it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Encoded(NamedTuple):
    """z and a ``[S, m]`` and h ``[S, c]`` of samples."""

    z: Tensor
    a: Tensor
    h: Tensor


@dataclass(frozen=True)
class TwoLayerReLU:
    """The structure of an encoder with W1 ``[m, d]`` and W2 ``[c, m]``.

    Args:
        first: what the encoder calls W1.
        second: what it calls W2.
        num_features: d.
        width: m.
        num_classes: c.
    """

    first: str
    second: str
    num_features: int
    width: int
    num_classes: int

    def split(self, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """W1 and W2."""
        return weights[self.first], weights[self.second]

    def join(self, W1: Tensor, W2: Tensor) -> dict[str, Tensor]:
        """The weights by name."""
        return {self.first: W1, self.second: W2}

    def encode(self, weights: dict[str, Tensor], times: Callable[[Tensor], Tensor]) -> Encoded:
        """z, a and h of the samples X that ``times`` multiplies by: W ↦ X Wᵀ."""
        W1, W2 = self.split(weights)
        z = times(W1)
        a = torch.relu(z)
        return Encoded(z, a, a @ W2.T)

    def jacobian_norm(self, weights: dict[str, Tensor], x: Tensor, a: Tensor, share: Tensor) -> Tensor:
        """‖∂/∂W Σ_s share_s h_s‖ for each client, ``x [k, n, d], a [k, n, m], share [k, n] → [k]``.

        ‖∇ĥ‖² = c ‖ā‖² + Σ_m ‖W2[:,m]‖² ‖U[m,:]‖² with U = Σ_s share_s s_s x_sᵀ.
        """
        W2 = weights[self.second]
        mean_a = (share[..., None] * a).sum(1)
        second = self.num_classes * mean_a.square().sum(1)
        s = share[..., None] * a.sign()
        column = W2.square().sum(0)
        if x.shape[1] == 1:
            first = x.square().sum((1, 2)) * (s[:, 0].square() @ column)
        else:
            first = (s.mT @ x).square().sum(2) @ column
        return (first + second).sqrt()
