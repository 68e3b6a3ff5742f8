"""Multi-layer perceptrons; with one hidden layer, ReLU and no bias, the paper's encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.checks import require, require_choice
from gfl_lightning.models.encoders.encoder import Encoder, Shapes, Weights
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU

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
class MLP(Encoder):
    """h = W_L σ(… σ(W_1 x)); the paper's is two layers, 64 wide, ReLU, no bias.

    >>> MLP((64,)).shapes(100, 2)
    {'W1': (64, 100), 'W2': (2, 64)}

    Args:
        hidden: widths of the hidden layers; none make it a linear map.
        activation: σ, one of relu, elu, gelu, leaky_relu, sigmoid, silu, tanh.
        bias: whether each layer adds b_l.
    """

    hidden: tuple[int, ...] = (64,)
    activation: str = "relu"
    bias: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        whole = all(type(width) is int and 1 <= width < 2**31 for width in self.hidden)
        require(whole, "hidden", "hold widths of at least 1", self.hidden)
        require_choice("activation", self.activation, tuple(ACTIVATIONS))
        usable = bool(self.hidden) or self.activation == "relu"
        require(usable, "activation", "be left out where there is no hidden layer", self.activation)

    def shapes(self, num_features: int, num_classes: int) -> Shapes:
        """W1, b1, W2, …"""
        shapes: Shapes = {}
        for layer, (fan_in, fan_out) in enumerate(pairwise((num_features, *self.hidden, num_classes)), start=1):
            shapes[f"W{layer}"] = (fan_out, fan_in)
            if self.bias:
                shapes[f"b{layer}"] = (fan_out,)
        return shapes

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """Layer by layer."""
        last = len(self.hidden) + 1
        for layer in range(1, last + 1):
            x = F.linear(x, weights[f"W{layer}"], weights.get(f"b{layer}"))
            if layer < last:
                x = ACTIVATIONS[self.activation](x)
        return x

    @property
    def has_bias(self) -> bool:
        """Whether layers add b_l."""
        return self.bias

    @property
    def linear_weight(self) -> str | None:
        """W1, where there is no hidden layer and no bias."""
        return None if self.hidden or self.bias else "W1"

    @property
    def feature_weight(self) -> str:
        """W1."""
        return "W1"

    def structure(self, num_features: int, num_classes: int) -> TwoLayerReLU | None:
        """The paper's, for two layers with ReLU and no bias."""
        if len(self.hidden) != 1 or self.activation != "relu" or self.bias:
            return None
        return TwoLayerReLU("W1", "W2", num_features, self.hidden[0], num_classes)
