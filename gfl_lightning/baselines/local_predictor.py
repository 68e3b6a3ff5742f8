"""What every client predicts by a model of its own, also where nobody trains."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.engine.engine import Predictor, require_weights
from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.models.encoders.encoder import Shapes, SizedEncoder, Weights
from gfl_lightning.models.encoders.mlp import MLP


class LocalPredictor(Predictor):
    """h_k(x) = W2_k relu(W1_k x): W1 ``[N, hidden, d]`` and W2 ``[N, c, hidden]`` hold the models of all clients.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> LocalPredictor(SC(num_clients=20, num_features=10).graph, hidden=8).shapes
    {'W1': (20, 8, 10), 'W2': (20, 2, 8)}

    Args:
        graph: the clients and their samples.
        hidden: width of the hidden layer.
        placement: where they stand among the clients that have models; ``None`` means that they are these.
    """

    def __init__(self, graph: ClientGraph, hidden: int = 64, placement: Placement | None = None) -> None:
        self.graph, self.hidden = graph, hidden
        models = graph.num_clients if placement is None else placement.size
        self._model = torch.arange(models) if placement is None else placement.known
        new = int((self._model < 0).sum())
        require(new == 0, "samples", "have clients of the checkpoint only, each with its model", f"{new} new clients")
        encoder = one_hidden_layer(graph.num_features, graph.num_classes, hidden)
        assert encoder.structure is not None
        self._structure = encoder.structure
        self.shapes: Shapes = {name: (models, *shape) for name, shape in encoder.shapes.items()}
        owned = Ragged.of(graph.client)
        self._x = graph.x[owned.place]
        self._position = torch.empty_like(graph.client)
        self._position[owned.place[owned.present]] = owned.present.flatten().nonzero().flatten()

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """Logits of every sample ``[S, c]`` under the model of its client; differentiable in the weights."""
        require_weights(weights, self.shapes)
        return self._logits(weights)

    def _logits(self, weights: Weights) -> Tensor:
        own = {name: weight[self._model.to(weight.device)] for name, weight in weights.items()}
        z, _ = forward(*self._structure.split(own), self._x)
        return z.flatten(0, 1)[self._position]


def one_hidden_layer(num_features: int, num_classes: int, hidden: int) -> SizedEncoder:
    """The paper's encoder of some width."""
    require_count("hidden", hidden)
    return SizedEncoder(MLP((hidden,)), num_features, num_classes)


def forward(W1: Tensor, W2: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """z = W2_k a and a = relu(W1_k x) of clients' samples, ``[N, b, d] → [N, b, c], [N, b, hidden]``."""
    a = torch.relu(x @ W1.mT)
    return a @ W2.mT, a
