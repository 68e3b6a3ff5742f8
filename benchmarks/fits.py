"""What a whole fit costs beside the bare engine: Lightning's loop, loggers, checkpoints and progress bar."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

from benchmarks.cases import subcora_sized
from benchmarks.timing import in_turns
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer

ROUNDS = 400
LR = 0.02


@dataclass(frozen=True, eq=False)
class AtHand(DataSet):
    """A graph that is made already."""

    made: ClientGraph

    def make(self) -> ClientGraph:
        """The graph."""
        return self.made


def bare(graph: ClientGraph) -> Callable[[], None]:
    """The rounds of the engine alone, from building the federation on."""

    def run() -> None:
        federation = Federation(graph, local=LocalTraining(LR))
        state = federation.start()
        for _ in range(ROUNDS):
            state, _ = federation.round(state)

    return run


def whole_fit(graph: ClientGraph) -> Callable[[], None]:
    """The same rounds as a fit: metrics of every round in a CSV log, checkpoints of the best model, a progress bar."""
    data = AtHand(graph)

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            trainer = FederatedTrainer(
                max_steps=ROUNDS,
                logger=CSVLogger(folder),
                callbacks=[ModelCheckpoint(monitor="val_loss")],
                enable_model_summary=False,
                accelerator="cpu",
            )
            trainer.fit(GFL(graph.num_features, graph.num_classes, local=LocalTraining(LR)), data)

    return run


def measure() -> dict[str, float]:
    """Time of the whole fit over that of the bare engine."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    graph = subcora_sized()
    engine, fit = in_turns(bare(graph), whole_fit(graph), repeats=5, warm_up=1)
    return {"fit_overhead": fit / engine}
