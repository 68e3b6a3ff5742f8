"""The contract of a network that sees the samples of all clients at once."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from gfl_lightning.graphs.client_graph import ClientGraph

Edges = tuple[Tensor, ...]


class GraphNet(nn.Module):
    """Z = f(X, G), ``[N, d] → [N, c]``; row k of X is the one sample of client k.

    It must be a function of its parameters and arguments alone: the engine passes it any weights by name.
    """

    @abstractmethod
    def feature_weights(self) -> list[str]:
        """Names of the parameters W ``[units, d]`` through which alone, as X Wᵀ, the network meets the features."""

    @abstractmethod
    def edges(self, graph: ClientGraph) -> Edges:
        """What :meth:`forward` needs of a graph, made once and used in every pass; refuses a graph it cannot read."""

    @abstractmethod
    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """Logits of every client."""
