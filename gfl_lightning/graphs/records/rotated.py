"""A secret rotation of feature space that all clients share and the server does not know."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gfl_lightning.checks import require_count
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.records import Records


@dataclass(frozen=True)
class Rotated(Records):
    """x ↦ Q x with a random orthogonal Q (Haar), drawn from a secret that clients share.

    h = Ψ(W1 x) = Ψ((W1 Qᵀ) Q x): the method is equivariant, so training goes the same way from W1 Qᵀ, and the server
    learns records up to Q. Every client knows Q. What that hides is measured in docs/audit.md: who knows a few records
    finds Q on their span.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> graph = DNC(num_clients=50).graph
    >>> turned = Rotated(secret=7).of(graph, np.random.default_rng(0))
    >>> torch.allclose(turned.x @ turned.x.T, graph.x @ graph.x.T, atol=1e-4)
    True

    Args:
        secret: what Q is drawn from; of no use once the server knows it.
    """

    secret: int = 0

    def __post_init__(self) -> None:
        require_count("secret", self.secret, least=0)

    def num_features(self, num_features: int, num_classes: int) -> int:
        """d."""
        return num_features

    def at_home(self, graph: ClientGraph) -> ClientGraph:
        """The turned samples: clients know Q."""
        source, d = np.random.default_rng(self.secret), graph.num_features
        Q, R = np.linalg.qr(source.standard_normal((d, d)))
        turn = torch.from_numpy(Q * np.sign(R.diagonal()))
        return replace(graph, x=(graph.x.double() @ turn.T.to(graph.x.device)).to(graph.x))

    def of(self, graph: ClientGraph, source: np.random.Generator) -> ClientGraph:
        """The graph with turned features; nothing else is random."""
        return self.at_home(graph)
