"""The paper's centralised baselines on PyG's layers: graph neural networks that see the samples of all clients.

All have two layers, no bias and no dropout, and draw their weights from an explicit generator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import APPNP, GATConv, GCNConv, Linear, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import appnp_coefficients
from gfl_lightning.models.encoders.encoder import SizedEncoder

Edges = tuple[Tensor, Tensor | None]
DENSE_UP_TO = 1000


class GraphNet(nn.Module):
    """Z = f(X, G), ``[N, d] → [N, c]``; row k of X is the one sample of client k."""

    name: ClassVar[str]
    takes_weights: ClassVar[bool]

    @abstractmethod
    def feature_weights(self) -> list[nn.Parameter]:
        """The weights that meet the features, each ``[units, d]`` as the network was made."""

    @abstractmethod
    def edges(self, graph: ClientGraph) -> Edges:
        """Edges as the layers expect them, ``[2, edges]`` and ``[edges]`` or none: made once, used in every pass."""

    @abstractmethod
    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Logits of every client."""


class APPNPNet(GraphNet):
    """Z = Ã W2 relu(W1 X), Ã = Σ_{i<M} α(1−α)^i P^i + (1−α)^M P^M; W1 ``[hidden, d]``, W2 ``[c, hidden]``.

    The weights start as those of an :class:`~gfl_lightning.models.encoder.Encoder` with the same generator.

    Args:
        num_features: d.
        num_classes: c.
        generator: of the initial weights.
        hidden: width of the hidden layer.
        alpha: teleport probability α.
        M: propagation steps.
    """

    name = "appnp"
    takes_weights = True

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        generator: torch.Generator,
        hidden: int = 64,
        alpha: float = 0.1,
        M: int = 10,
    ) -> None:
        super().__init__()
        appnp_coefficients(alpha, M)
        self.encoder = Encoder(num_features, num_classes, (hidden,))
        weights = self.encoder.initial_weights(generator)
        self.W1, self.W2 = nn.Parameter(weights["W1"]), nn.Parameter(weights["W2"])
        self.propagate = APPNP(M, alpha, normalize=False)

    def feature_weights(self) -> list[nn.Parameter]:
        """W1."""
        return [self.W1]

    def edges(self, graph: ClientGraph) -> Edges:
        """P = D̂^{-1/2}(A+I)D̂^{-1/2}; for small graphs Ã ``[N, N]`` itself, what the layer makes of the identity."""
        index, weight = _normalized(graph)
        if graph.num_clients > DENSE_UP_TO:
            return index, weight
        return self.propagate(
            torch.eye(graph.num_clients, dtype=graph.x.dtype, device=index.device), index, weight
        ), None

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Encode, then propagate."""
        H = self.encoder({"W1": self.W1, "W2": self.W2}, x)
        return edges[0] @ H if edges[0].is_floating_point() else self.propagate(H, *edges)


class TwoLayers(GraphNet):
    """Z = layer₂(σ(layer₁(X, G)), G)."""

    activation: Callable[[Tensor], Tensor]

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def feature_weights(self) -> list[nn.Parameter]:
        """The matrices of the first layer."""
        return [layer.weight for layer in self.first.modules() if isinstance(layer, Linear)]

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Both layers, σ between them."""
        return self.second(self.activation(self.first(x, *edges)), *edges)


class GCN(TwoLayers):
    """Z = P relu(P X W1ᵀ) W2ᵀ with P = D̂^{-1/2}(A+I)D̂^{-1/2}.

    Args:
        num_features: d.
        num_classes: c.
        generator: of the initial weights.
        hidden: width of the hidden layer.
    """

    name = "gcn"
    takes_weights = True
    activation = staticmethod(torch.relu)

    def __init__(self, num_features: int, num_classes: int, generator: torch.Generator, hidden: int = 64) -> None:
        _require_sizes(num_features, num_classes, hidden)
        with _drawing_from(generator):
            first = GCNConv(num_features, hidden, bias=False, normalize=False)
            second = GCNConv(hidden, num_classes, bias=False, normalize=False)
        super().__init__(first, second)

    def edges(self, graph: ClientGraph) -> Edges:
        """P."""
        return _normalized(graph)


class GAT(TwoLayers):
    """Attention over neighbours and oneself: 8 heads side by side, ELU, then one head.

    The paper's "8 heads × 8, then 1 head × 64" is read as 8 heads of 8 units whose 64 outputs enter one head with
    the c classes as its units, as in the original GAT.

    Args:
        num_features: d.
        num_classes: c.
        generator: of the initial weights.
        hidden: width of all heads of the first layer together.
    """

    HEADS: ClassVar[int] = 8
    name = "gat"
    takes_weights = False
    activation = staticmethod(F.elu)

    def __init__(self, num_features: int, num_classes: int, generator: torch.Generator, hidden: int = 64) -> None:
        _require_sizes(num_features, num_classes, hidden)
        require(hidden % self.HEADS == 0, "hidden", f"be a multiple of {self.HEADS}, the number of heads", hidden)
        with _drawing_from(generator):
            first = GATConv(num_features, hidden // self.HEADS, self.HEADS, bias=False, add_self_loops=False)
            second = GATConv(hidden, num_classes, 1, bias=False, add_self_loops=False)
        super().__init__(first, second)

    def edges(self, graph: ClientGraph) -> Edges:
        """The edges and a self-loop at every client."""
        return add_self_loops(graph.edge_index, num_nodes=graph.num_clients)[0], None


class GraphSAGE(TwoLayers):
    """Two layers x_k ↦ W_self x_k + W_near mean_{j ∈ 𝒩(k)} x_j, ReLU between them.

    Args:
        num_features: d.
        num_classes: c.
        generator: of the initial weights.
        hidden: width of the hidden layer.
    """

    name = "sage"
    takes_weights = False
    activation = staticmethod(torch.relu)

    def __init__(self, num_features: int, num_classes: int, generator: torch.Generator, hidden: int = 64) -> None:
        _require_sizes(num_features, num_classes, hidden)
        with _drawing_from(generator):
            first = SAGEConv(num_features, hidden, bias=False)
            second = SAGEConv(hidden, num_classes, bias=False)
        super().__init__(first, second)

    def edges(self, graph: ClientGraph) -> Edges:
        """The edges as they are."""
        return graph.edge_index, None


def _normalized(graph: ClientGraph) -> Edges:
    index, weight = gcn_norm(graph.edge_index, graph.edge_weight, graph.num_clients, dtype=graph.x.dtype)
    return index, weight


def _require_sizes(num_features: int, num_classes: int, hidden: int) -> None:
    require(num_features >= 1, "num_features", "be at least 1", num_features)
    require(num_classes >= 2, "num_classes", "be at least 2", num_classes)
    require(hidden >= 1, "hidden", "be at least 1", hidden)


@contextmanager
def _drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let PyG's layers, which know only the global generator, draw what ``generator`` determines."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
