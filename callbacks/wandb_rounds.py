"""What a W&B run shows of a fit beside the metrics of its rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import WandbLogger

from gfl_lightning.checks import InputError, require
from gfl_lightning.engine.evaluation import client_score
from gfl_lightning.federated.state import FederationState
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.reports.figures import client_graph, loss_curves
from gfl_lightning.theory.connectivity import connectivity
from gfl_lightning.theory.drift import client_drift
from gfl_lightning.theory.gradient import gradient_norm_squared


class WandbRounds(Callback):
    """λ_max(B_N L†) once, drift and ‖∇F(W̄)‖² every n rounds, and at the end a table and figures of the best model.

    Numbers go to every logger, under the step of their round; sentences, the table and the figures to W&B. λ_max is
    given for the graph and for its training clients; where it is infinite only a sentence says so. Drift and ‖∇F(W̄)‖²,
    both of the round just made, exist for federations only. The losses of the curves are kept in checkpoints.

    >>> WandbRounds(every_n_rounds=10).state_dict()
    {'losses': []}

    Args:
        every_n_rounds: rounds between two measurements of drift and ‖∇F(W̄)‖²; one costs tens of rounds.
    """

    def __init__(self, every_n_rounds: int = 50) -> None:
        super().__init__()
        require(every_n_rounds >= 1, "every_n_rounds", "be at least 1", every_n_rounds)
        self.every_n_rounds = every_n_rounds
        self._losses: list[tuple[int, float, float]] = []
        self._before: FederationState | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a fit that no W&B run would see, unless it is a `fast_dev_run`, where Lightning takes loggers away."""
        require(
            stage != "fit" or bool(_runs(trainer)) or bool(getattr(trainer, "fast_dev_run", False)),
            "callbacks.WandbRounds",
            "be used with a WandbLogger",
            [type(logger).__name__ for logger in trainer.loggers],
        )
        _rounds(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the graph; forget losses of rounds that this fit will make again."""
        module = _rounds(pl_module)
        self._losses = [row for row in self._losses if row[0] <= trainer.global_step]
        graph = module.graph
        found = {"lambda_max": connectivity(graph), "lambda_max_training": connectivity(graph, graph.training_clients)}
        finite = {name: one.lambda_max for name, one in found.items() if math.isfinite(one.lambda_max)}
        _log(trainer, finite, trainer.global_step)
        for logger in _runs(trainer):
            logger.experiment.summary.update({f"{name}_sentence": str(one) for name, one in found.items()})

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep the state that a round to be measured starts from."""
        due = (batch_idx + 1) % self.every_n_rounds == 0
        self._before = pl_module.state if due and isinstance(pl_module, GFL) else None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the losses, and measure the round if it is due."""
        module = _rounds(pl_module)
        self._losses.append((batch_idx + 1, module.round_metrics["train_loss"], module.round_metrics["val_loss"]))
        if self._before is not None and isinstance(module, GFL):
            measured = {
                "drift": client_drift(module.federation, self._before, module.round_metrics["lr"]),
                "grad_norm_squared": gradient_norm_squared(module.federation, module.state.weights),
            }
            _log(trainer, measured, batch_idx)
            self._before = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Table and figures of the best model."""
        module = _rounds(pl_module)
        with _best_weights(module):
            metrics, logits = module.evaluate(), module.predict_logits()
        graph, step = module.graph, trainer.global_step - 1
        rounds, train, val = zip(*self._losses, strict=True)
        curves = loss_curves(rounds, {"train": train, "validation": val}, module.best.round or None)
        clients = client_graph(graph, client_score(graph, logits))
        columns = ["split", *vars(metrics["test"])]
        rows = [[split, *vars(found).values()] for split, found in metrics.items()]
        for logger in _runs(trainer):
            logger.log_table("best_model", columns, rows, step=step)
            logger.log_image("loss_curves", [curves], step=step)
            logger.log_image("client_graph", [clients], step=step)

    def state_dict(self) -> dict[str, Any]:
        """The losses so far."""
        return {"losses": self._losses}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them up again."""
        self._losses = state_dict["losses"]


@contextmanager
def _best_weights(module: RoundModule) -> Iterator[None]:
    """The best round's weights as parameters, for a while."""
    kept = {name: weight.clone() for name, weight in module.current_weights().items()}
    module.use_best()
    try:
        yield
    finally:
        module.set_parameters(kept)


def _rounds(module: LightningModule) -> RoundModule:
    if not isinstance(module, RoundModule):
        raise InputError(
            f"callbacks.WandbRounds must be used with a model that trains in rounds, got {type(module).__name__}."
        )
    return module


def _runs(trainer: Trainer) -> list[WandbLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]


def _log(trainer: Trainer, metrics: dict[str, float], step: int) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=step)
