"""What networks of two of PyG's layers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear

from gfl_lightning.baselines.networks.graph_net import Edges, GraphNet


class TwoLayers(GraphNet):
    """Z = layer₂(σ(layer₁(X, G)), G); a subclass says what G is to its layers.

    Args:
        first: layer₁, whose linear maps are applied to the features.
        second: layer₂.
        activation: σ.
    """

    def __init__(self, first: nn.Module, second: nn.Module, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.activation = first, second, activation

    def feature_weights(self) -> list[str]:
        """The matrices of the first layer."""
        maps = [name for name, layer in self.first.named_modules() if isinstance(layer, Linear)]
        return [f"first.{name}.weight" for name in maps]

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Both layers, σ between them."""
        return self.second(self.activation(self.first(x, *edges)), *edges)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let PyG's layers, which know only the global generator, draw what ``generator`` determines."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
