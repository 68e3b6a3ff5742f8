"""The baseline without any exchange as a LightningModule: every client trains an MLP of its own on its own samples."""

from __future__ import annotations

from pytorch_lightning.cli import LRSchedulerCallable

from gfl_lightning.baselines.local_mlps import LocalModels, initial_weights
from gfl_lightning.baselines.local_predictor import LocalPredictor
from gfl_lightning.checks import require, require_count
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.options import described
from gfl_lightning.lit.round_module import RoundModule


class LocalMLPs(RoundModule):
    """N models h_k(x) = W2_k relu(W1_k x), each trained on the samples of its client: one update of each a round.

    ``W1 [N, hidden, d]`` and ``W2 [N, c, hidden]`` hold all models. Every client has its own best round, that of its
    lowest validation loss (its last round, if it has no validation samples): :meth:`use_best` gives each client the
    weights of its own, while ``best.round`` and ``best.val_loss`` are of the round with the lowest mean over all.

    >>> {name: tuple(weight.shape) for name, weight in LocalMLPs(10, 2, num_clients=5).current_weights().items()}
    {'W1': (5, 64, 10), 'W2': (5, 2, 64)}

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        num_clients: N, linked to the data.
        hidden: width of the hidden layer.
        lr: η.
        batch_size: samples per update and client; none means all.
        seed: of the initial weights, drawn for each client anew, and of the batches.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    models_per_client = True

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        num_clients: int,
        hidden: int = 64,
        lr: float = 0.1,
        batch_size: int | None = 5,
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        options = described(locals())
        if batch_size is not None:
            require_count("batch_size", batch_size)
        weights = initial_weights(num_features, num_classes, num_clients, hidden, seed)
        super().__init__(weights, num_features, num_classes, lr, lr_scheduler)
        self.save_hyperparameters(options)
        self.num_clients, self.hidden, self.batch_size, self.seed = num_clients, hidden, batch_size, seed

    def require_fit(self, graph: ClientGraph) -> None:
        """Refuse a graph of other sizes, or of more or fewer clients than there are models."""
        super().require_fit(graph)
        own, found = self.num_clients, graph.num_clients if self.placement is None else self.placement.size
        require(found == own, "graph", f"have {own} clients, as the model has", found)

    def engine_on(self, graph: ClientGraph, rounds: int) -> LocalModels:
        """The updates of every client's model."""
        return LocalModels(graph, self.hidden, self.lr, self.batch_size, self.seed)

    def predictor_on(self, graph: ClientGraph) -> LocalPredictor:
        """Every client by its own model."""
        return LocalPredictor(graph, self.hidden, self.placement)
