"""Ψ_h, the encoder that all clients share, as a pure function of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.init import xavier_uniform_

from gfl_lightning.checks import require

Weights = dict[str, Tensor]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Encoder:
    """h = W_L σ(… σ(W_1 x)), ``[..., d] → [..., c]``; the paper's is two layers, 64 wide, ReLU, no bias.

    Args:
        num_features: d.
        num_classes: c, the dimension of a representation.
        hidden: widths of the hidden layers; an empty tuple is a linear map.
        activation: σ, a key of :data:`ACTIVATIONS`.
        bias: whether each layer adds b_l.
    """

    num_features: int
    num_classes: int
    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    bias: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        require(self.num_features >= 1, "num_features", "be at least 1", self.num_features)
        require(self.num_classes >= 2, "num_classes", "be at least 2", self.num_classes)
        require(all(width >= 1 for width in self.hidden), "hidden", "hold widths of at least 1", self.hidden)
        require(self.activation in ACTIVATIONS, "activation", f"be one of {', '.join(ACTIVATIONS)}", self.activation)

    @property
    def is_papers(self) -> bool:
        """Two layers, ReLU, no bias: the encoder whose Jacobian has the structure that makes a round cheap."""
        return len(self.hidden) == 1 and self.activation == "relu" and not self.bias

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight: W1, b1, W2, …"""
        widths = (self.num_features, *self.hidden, self.num_classes)
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(pairwise(widths), start=1):
            shapes[f"W{layer}"] = (fan_out, fan_in)
            if self.bias:
                shapes[f"b{layer}"] = (fan_out,)
        return shapes

    def initial_weights(self, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Weights:
        """Glorot (Xavier uniform) matrices and zero biases."""
        weights = {name: torch.zeros(shape, dtype=dtype) for name, shape in self.shapes.items()}
        for weight in weights.values():
            if weight.ndim == 2:
                xavier_uniform_(weight, generator=generator)
        return weights

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """Representations of samples, ``[..., d] → [..., c]``."""
        last = len(self.hidden) + 1
        for layer in range(1, last + 1):
            x = F.linear(x, weights[f"W{layer}"], weights.get(f"b{layer}"))
            if layer < last:
                x = ACTIVATIONS[self.activation](x)
        return x
