"""The paper's encoder and aggregator in one network: what a federation with I = 1 computes, in one place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import APPNP as APPNPLayer  # noqa: N811  # PyG's layer, beside our options

from gfl_lightning.baselines.networks.architecture import WIDEST, Architecture
from gfl_lightning.baselines.networks.edges import normalized
from gfl_lightning.baselines.networks.graph_net import Edges, GraphNet
from gfl_lightning.checks import require_count
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP

DENSE_UP_TO = 1000


@dataclass(frozen=True)
class APPNPNet(Architecture):
    """Z = Ã W2 relu(W1 X), Ã = Σ_{i<M} α(1−α)^i P^i + (1−α)^M P^M; W1 ``[hidden, d]``, W2 ``[c, hidden]``.

    The weights start as those of the encoder with the same generator.

    >>> net = APPNPNet(hidden=16, alpha=0.2).build(100, 7, torch.Generator().manual_seed(0))
    >>> [tuple(weight.shape) for weight in net.parameters()]
    [(16, 100), (7, 16)]

    Args:
        hidden: width of the hidden layer.
        alpha: teleport probability α.
        M: propagation steps.
    """

    hidden: int = 64
    alpha: float = 0.1
    M: int = 10

    def __post_init__(self) -> None:
        require_count("hidden", self.hidden, most=WIDEST)
        APPNP(self.alpha, self.M)  # refuses what is no APPNP

    def build(self, num_features: int, num_classes: int, generator: torch.Generator) -> APPNPModule:
        """The network."""
        encoder = SizedEncoder(MLP((self.hidden,)), num_features, num_classes)
        return APPNPModule(encoder, APPNP(self.alpha, self.M), generator)


class APPNPModule(GraphNet):
    """Z = Ã h(X), with the encoder's weights as parameters.

    >>> net = APPNPNet(hidden=16).build(4, 3, torch.Generator().manual_seed(0))
    >>> net(torch.ones(2, 4), (torch.eye(2),)).shape
    torch.Size([2, 3])

    Args:
        encoder: h, the paper's.
        aggregator: Ã.
        generator: of the initial weights.
    """

    def __init__(self, encoder: SizedEncoder, aggregator: APPNP, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = encoder
        for name, weight in encoder.initial_weights(generator).items():
            self.register_parameter(name, nn.Parameter(weight))
        self.propagate = APPNPLayer(aggregator.M, aggregator.alpha, normalize=False)

    def feature_weights(self) -> list[str]:
        """W1."""
        structure = self.encoder.structure
        assert structure is not None
        return [structure.first]

    def edges(self, graph: ClientGraph) -> Edges:
        """P; for small graphs Ã ``[N, N]`` itself, what the layer makes of the identity."""
        P = normalized(graph)
        if graph.num_clients > DENSE_UP_TO:
            return P
        return (self.propagate(torch.eye(graph.num_clients, dtype=graph.x.dtype, device=graph.x.device), *P),)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Encode, then propagate."""
        H = self.encoder({name: getattr(self, name) for name in self.encoder.shapes}, x)
        return edges[0] @ H if len(edges) == 1 else self.propagate(H, *edges)
