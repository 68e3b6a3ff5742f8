"""What is trained: the encoder's weights, and γ where the aggregator learns it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights

GAMMA = "gamma"


@dataclass(frozen=True)
class Model:
    """W: the weights of Ψ_h by their names and, for a learnable Ψ_G, ``gamma [M+1]``.

    >>> from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> Model(SizedEncoder(MLP(), 100, 2), LearnablePolynomial(M=10)).shapes
    {'W1': (64, 100), 'W2': (2, 64), 'gamma': (11,)}

    Args:
        encoder: Ψ_h.
        aggregator: Ψ_G.
    """

    encoder: SizedEncoder
    aggregator: Aggregator

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight by name."""
        learned = {GAMMA: tuple(self.aggregator.gamma.shape)} if self.aggregator.learnable else {}
        return self.encoder.shapes | learned

    @property
    def num_weights(self) -> int:
        """|W|."""
        return self.encoder.num_weights + (len(self.aggregator.gamma) if self.aggregator.learnable else 0)

    def initial_weights(self, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Weights:
        """Where training starts."""
        learned = {GAMMA: self.aggregator.gamma.to(dtype)} if self.aggregator.learnable else {}
        return self.encoder.initial_weights(generator, dtype) | learned

    def gamma(self, weights: Weights) -> Tensor:
        """γ at some weights ``[M+1]``: learned or fixed."""
        return weights[GAMMA] if self.aggregator.learnable else self.aggregator.gamma
