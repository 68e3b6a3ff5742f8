"""The contract of Ψ_h, the encoder that all clients share, and an encoder that knows the sizes of its data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.init import xavier_uniform_

from gfl_lightning.checks import require, require_room
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU

Weights = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


class Encoder(ABC):
    """h = Ψ_h(x; W), ``[..., d] → [..., c]``: a pure function of its weights.

    A subclass is a frozen dataclass of its options. It says which weights there are and what it makes of a sample; the
    general path then trains it, exactly, with every aggregator and protection. An encoder whose Jacobian has the
    structure of the paper's says so by :meth:`structure`, a linear one by `linear_weight`; fast paths and the Gram
    protocol carry both.

    >>> @dataclass(frozen=True)
    ... class Linear(Encoder):
    ...     def shapes(self, num_features: int, num_classes: int) -> Shapes:
    ...         return {"W": (num_classes, num_features)}
    ...
    ...     def __call__(self, weights: Weights, x: Tensor) -> Tensor:
    ...         return x @ weights["W"].T
    >>> SizedEncoder(Linear(), 100, 2).num_weights
    200
    """

    @abstractmethod
    def shapes(self, num_features: int, num_classes: int) -> Shapes:
        """Shape of each weight by name, for d features and c classes."""

    @abstractmethod
    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """Representations of samples, ``[..., d] → [..., c]``, by operations that torch.func can transform."""

    def initial_weights(self, shapes: Shapes, generator: torch.Generator, dtype: torch.dtype) -> Weights:
        """Where training starts: Glorot (Xavier uniform) matrices, zero elsewhere."""
        weights = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
        for weight in weights.values():
            if weight.ndim == 2:
                xavier_uniform_(weight, generator=generator)
        return weights

    def structure(self, num_features: int, num_classes: int) -> TwoLayerReLU | None:
        """The algebra that the fast paths need; ``None`` where the encoder has none of it."""
        return None

    @property
    def has_bias(self) -> bool:
        """Whether weights can add the same to the outputs of all samples, as the bias of a last layer does."""
        return False

    @property
    def linear_weight(self) -> str | None:
        """Name of the only weight W ``[c, d]`` where h = W x, which the linear path carries; ``None`` elsewhere."""
        return None

    @property
    def feature_weight(self) -> str | None:
        """Name of the weight W ``[m, d]`` that alone meets the features, as W x; ``None`` where there is no such one.

        Noise on its Jacobian then need only be drawn as far as clients read it.
        """
        return None


@dataclass(frozen=True)
class SizedEncoder:
    """An encoder on data of d features and c classes.

    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP((16,)), num_features=4, num_classes=3)
    >>> encoder(encoder.initial_weights(torch.Generator().manual_seed(0)), torch.ones(5, 4)).shape
    torch.Size([5, 3])

    Args:
        encoder: Ψ_h.
        num_features: d.
        num_classes: c, the dimension of a representation.
    """

    encoder: Encoder
    num_features: int
    num_classes: int

    def __post_init__(self) -> None:
        require(self.num_features >= 1, "num_features", "be at least 1", self.num_features)
        require(self.num_classes >= 1, "num_classes", "be at least 1", self.num_classes)

    @cached_property
    def shapes(self) -> Shapes:
        """Shape of each weight by name."""
        shapes = self.encoder.shapes(self.num_features, self.num_classes)
        numbers = sum(math.prod(shape) for shape in shapes.values())
        require_room("encoder", self.encoder, 4 * numbers, 4)
        return shapes

    @cached_property
    def structure(self) -> TwoLayerReLU | None:
        """The algebra that the fast paths need; ``None`` where the encoder has none of it."""
        return self.encoder.structure(self.num_features, self.num_classes)

    @property
    def has_factors(self) -> bool:
        """Whether its Jacobian is known by factors: two-layer ReLU or linear, without bias."""
        return self.structure is not None or self.encoder.linear_weight is not None

    @property
    def num_weights(self) -> int:
        """|W|, how many numbers all weights are together."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def initial_weights(self, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Weights:
        """Where training starts."""
        return self.encoder.initial_weights(self.shapes, generator, dtype)

    def own(self, weights: Weights) -> Weights:
        """Those of some weights that are the encoder's: an aggregator may have its own beside them."""
        return {name: weights[name] for name in self.shapes}

    def __call__(self, weights: Weights, x: Tensor) -> Tensor:
        """Representations of samples, ``[..., d] → [..., c]``."""
        return self.encoder(weights, x)
