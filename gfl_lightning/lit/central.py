"""The paper's centralised baselines as a LightningModule: full-batch gradient descent of a graph neural network."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor

from gfl_lightning.baselines.central import Architecture, CentralSamples, descend, network, require_finite, require_fit
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.round_module import RoundModule, RoundResult
from gfl_lightning.models.encoders.encoder import Weights


class Central(RoundModule):
    """W ← W − η ∇ mean_{k ∈ train} loss(y_k, f_k(X, G; W)): one update a round, all samples in one place.

    Only for graphs with one sample per client (DNC). With ``appnp`` it is what GFL-APPNP with I = 1 computes.

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        architecture: ``appnp``, ``gcn``, ``gat`` or ``sage``.
        hidden: width of the hidden layer.
        lr: η.
        alpha: APPNP's teleport probability; the others have none.
        M: APPNP's propagation steps; the others have none.
        seed: of the initial weights.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        architecture: Architecture = "appnp",
        hidden: int = 64,
        lr: float = 0.5,
        alpha: float = 0.1,
        M: int = 10,
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(lr, lr_scheduler)
        self.save_hyperparameters(ignore=["lr_scheduler", "num_clients"])  # the command line offers the latter to all
        self.sizes = (num_features, num_classes)
        self.net = network(architecture, num_features, num_classes, hidden, alpha, M, seed)
        self._samples: CentralSamples | None = None
        self._weights: Weights = {}
        self._gradient: tuple[Tensor, ...] = ()

    def prepare(self, graph: ClientGraph) -> None:
        """Refuse graphs that the network cannot read, and arrange the samples of others."""
        require_fit(graph, *self.sizes)
        self._samples = CentralSamples.of(graph, self.net)

    @property
    def samples(self) -> CentralSamples:
        """The data as the network reads them."""
        assert self._samples is not None, "the samples exist once the data are set up"
        return self._samples

    def begin(self, rounds_done: int, saved: dict[str, Any]) -> None:
        """Start from the parameters; gradient descent has no other state."""
        self._look()

    def progress(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def run_round(self, lr: float) -> RoundResult:
        """One update, from whatever the parameters are now."""
        if not self._weights_are_the_rounds():
            self._look()
        descend(self.net, self._gradient, lr)
        metrics = self._look()
        require_finite(metrics, lr)
        return RoundResult(metrics, {"lr": lr})

    def predict_logits(self) -> Tensor:
        """f(X, G; W)."""
        with torch.no_grad():
            return self.samples.logits(self.net)

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split."""
        return self.samples.evaluator(self.predict_logits())

    def _look(self) -> dict[str, Metrics]:
        """One pass forth and back: metrics of the parameters, and the gradient that the next update will take."""
        logits, self._gradient = self.samples.look(self.net)
        self._weights = {name: weight.clone() for name, weight in self.current_weights().items()}
        return self.samples.evaluator(logits)

    def last_weights(self) -> Weights:
        """W after the last update."""
        return self._weights
