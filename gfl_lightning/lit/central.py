"""The paper's centralised baselines as a LightningModule: full-batch gradient descent of a graph neural network."""

from __future__ import annotations

from pytorch_lightning.cli import LRSchedulerCallable

from gfl_lightning.baselines.central import CentralDescent, initial_weights
from gfl_lightning.baselines.central_predictor import CentralPredictor
from gfl_lightning.baselines.networks.appnp_net import APPNPNet
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.baselines.networks.gat import GAT
from gfl_lightning.baselines.networks.gcn import GCN
from gfl_lightning.baselines.networks.graph_sage import GraphSAGE
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.options import described
from gfl_lightning.lit.round_module import RoundModule

KNOWN = (GCN, GAT, GraphSAGE)  # for checkpoints and short names


class Central(RoundModule):
    """W ← W − η ∇ mean_{k ∈ train} loss(y_k, f_k(X, G; W)): one update a round, all samples in one place.

    Only for graphs with one sample per client (DNC). With ``APPNPNet`` it is what GFL-APPNP with I = 1 computes.

    >>> sorted(Central(10, 2, GCN(hidden=8)).current_weights())
    ['first.lin.weight', 'second.lin.weight']

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        architecture: ``APPNPNet``, ``GCN``, ``GAT`` or ``GraphSAGE``.
        lr: η.
        seed: of the initial weights.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        architecture: Architecture = APPNPNet(),  # noqa: B008  # frozen
        lr: float = 0.5,
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        options = described(locals())
        weights = initial_weights(architecture, num_features, num_classes, seed)
        super().__init__(weights, num_features, num_classes, lr, lr_scheduler)
        self.save_hyperparameters(options)
        self.architecture, self.seed = architecture, seed

    def engine_on(self, graph: ClientGraph, rounds: int) -> CentralDescent:
        """Gradient descent on a graph."""
        return CentralDescent(graph, self.architecture, self.lr, self.seed)

    def predictor_on(self, graph: ClientGraph) -> CentralPredictor:
        """f(X, G; W)."""
        return CentralPredictor(graph, self.architecture)
