"""The same training with N features instead of d > N, exactly."""

from __future__ import annotations

from dataclasses import replace

import torch

from gfl_lightning.baselines.central import initial_weights
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Weights


def on_span(graph: ClientGraph, architecture: Architecture, seed: int = 0) -> tuple[ClientGraph, Weights]:
    """The features in coordinates of their span ``[N, N]``, and the weights from which training takes the same steps.

    Write Xᵀ = Q R with orthonormal columns Q ``[d, N]``. A network meets X through X Wᵀ = Rᵀ (W Q)ᵀ alone, and gradient
    descent moves W within the span of Q, so that W Q takes the same steps on the features Rᵀ. Where d ≤ N there is
    nothing to gain, and graph and weights are those that training would start with anyway.

    >>> from gfl_lightning.baselines.central import CentralDescent
    >>> from gfl_lightning.baselines.networks.gcn import GCN
    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> small, weights = on_span(DNC(num_clients=50, num_features=100).graph, GCN())
    >>> small.num_features, CentralDescent(small, GCN()).start(weights).round
    (50, 0)
    """
    weights = initial_weights(architecture, graph.num_features, graph.num_classes, seed)
    if graph.num_features <= graph.num_samples:
        return graph, weights
    Q, R = torch.linalg.qr(graph.x.double().T)
    net = architecture.build(graph.num_features, graph.num_classes, torch.Generator())
    for name in net.feature_weights():
        weights[name] = (weights[name].to(Q) @ Q).to(graph.x.dtype)
    return replace(graph, x=R.T.to(graph.x.dtype).contiguous()), weights
