"""What the loop of rounds needs of a LightningModule, and what all models share: the best round, tests, checkpoints."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.federated.options import require_rate
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.report import PrivacyReport


@dataclass(frozen=True)
class RoundResult:
    """Metrics of the model after a round, by split, and anything else worth logging."""

    metrics: dict[str, Metrics]
    scalars: dict[str, float]


@dataclass
class Best:
    """The round with the lowest validation loss so far, and its weights."""

    round: int = 0
    val_loss: float = math.inf
    weights: Weights = field(default_factory=dict)


class RoundModule(LightningModule):
    """A model trained in rounds, on the client graph of a data module.

    Subclasses say how to prepare for a graph, how to make a round and what the weights predict. The clients' rate is
    carried by an optimizer, so that schedulers and monitors of it work; the optimizer itself never steps.

    Args:
        lr: η.
        lr_scheduler: makes a torch scheduler of η from the carrier; it steps once a round.
    """

    def __init__(self, lr: float, lr_scheduler: LRSchedulerCallable | None = None) -> None:
        super().__init__()
        require_rate("lr", lr)
        self.lr = lr
        self._lr_scheduler = lr_scheduler
        self.best = Best()
        self.round_metrics: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.seconds = 0.0
        self._saved_progress: dict[str, Any] = {}
        self._running = False
        self._prepared_for: tuple[torch.device, torch.dtype] | None = None

    @property
    def updates_per_round(self) -> int:
        """Local updates that a client makes in a round."""
        return 1

    @property
    def may_go_on(self) -> bool:
        """Whether another round is allowed, whatever a trainer wants."""
        return True

    @property
    def privacy(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nothing protects them."""
        return None

    @abstractmethod
    def prepare(self, graph: ClientGraph) -> None:
        """Check the graph and build what rounds on it need."""

    @abstractmethod
    def begin(self, rounds_done: int, saved: dict[str, Any]) -> None:
        """Start from the module's parameters.

        ``saved`` is what :meth:`progress` returned in a run that a checkpoint resumes; it is empty in a new run, and
        where a trainer goes on with the module it has just trained.
        """

    @abstractmethod
    def run_round(self, lr: float) -> RoundResult:
        """One round, after which the parameters are the new model."""

    @abstractmethod
    def progress(self) -> dict[str, Any]:
        """What a resumed run needs beside the parameters: plain containers of tensors and numbers."""

    @abstractmethod
    def predict_logits(self) -> Tensor:
        """Logits of every sample at the module's parameters ``[S, c]``."""

    @abstractmethod
    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split at the module's parameters."""

    @property
    def graph(self) -> ClientGraph:
        """The client graph of the data module, on the module's device and in its precision."""
        datamodule = getattr(self.trainer, "datamodule", None)
        require(hasattr(datamodule, "graph"), "datamodule", "be one that produces a client graph", datamodule)
        assert datamodule is not None
        parameter = next(self.parameters())
        return datamodule.graph.to(parameter.device).to(parameter.dtype)

    def current_weights(self) -> Weights:
        """The parameters by name, without gradients."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def setup(self, stage: str) -> None:
        """Lightning's hook: refuse unfit data before anything long begins."""
        self._prepared_for = None
        self._prepare_where_the_parameters_are()

    def on_fit_start(self) -> None:
        """Lightning's hook, after the module was moved to its device and precision."""
        self._prepare_where_the_parameters_are()

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    def _prepare_where_the_parameters_are(self) -> None:
        parameter = next(self.parameters())
        place = (parameter.device, parameter.dtype)
        if self._prepared_for != place:
            self.prepare(self.graph)
            self._prepared_for = place

    def configure_optimizers(self) -> Any:
        """The carrier of the clients' rate, and its scheduler."""
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        if self._lr_scheduler is None:
            return optimizer
        schedule = {"scheduler": self._lr_scheduler(optimizer), "interval": "step", "monitor": "val_loss"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_train_start(self) -> None:
        """Begin, or go on from what a checkpoint brought."""
        saved, self._saved_progress = self._saved_progress, {}
        if self.trainer.global_step == 0:
            saved, self.best, self.totals, self.seconds = {}, Best(), {}, 0.0
        self._running = True
        self.begin(self.trainer.global_step, saved)

    def training_step(self, batch: int, batch_idx: int) -> dict[str, Tensor]:
        """One communication round."""
        started = time.perf_counter()
        result = self.run_round(self.trainer.optimizers[0].param_groups[0]["lr"])
        self.round_metrics = _scalars(result)
        self._keep_best(batch_idx + 1, result.metrics["val"].loss)
        for name in ("bytes_up", "bytes_down", "printed_bytes_up", "printed_bytes_down"):
            self.totals[name] = self.totals.get(name, 0) + result.scalars.get(name, 0)
        self.seconds += time.perf_counter() - started
        return {"loss": torch.tensor(self.round_metrics["train_loss"])}

    def validation_metrics(self) -> dict[str, float]:
        """Metrics of the current parameters: the round's own, unless a callback has put other weights in."""
        if self._weights_are_the_rounds():
            return {name: value for name, value in self.round_metrics.items() if name.startswith("val_")}
        metrics = self.evaluate()["val"]
        return {f"val_{name}": value for name, value in vars(metrics).items()}

    @abstractmethod
    def last_weights(self) -> Weights:
        """The weights that the last round left."""

    def _weights_are_the_rounds(self) -> bool:
        """Whether the parameters are those that the last round left, and no callback has put others in."""
        now = self.current_weights()
        return all(torch.equal(now[name], weight) for name, weight in self.last_weights().items())

    def _keep_best(self, round_number: int, val_loss: float) -> None:
        if val_loss < self.best.val_loss:
            self.best = Best(round_number, val_loss, self.last_weights())

    def use_best(self) -> None:
        """Make the weights of the best round the parameters."""
        if self.best.weights:
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    parameter.data = self.best.weights[name].to(parameter.device).clone()

    def validation_step(self, batch: int, batch_idx: int) -> None:
        """`validate`: metrics of the parameters on the validation samples."""
        self._log_metrics("val")

    def test_step(self, batch: int, batch_idx: int) -> None:
        """`test`: metrics of the parameters on the test samples."""
        self._log_metrics("test")

    def predict_step(self, batch: int, batch_idx: int) -> Tensor:
        """`predict`: class probabilities of every sample ``[S, c]``."""
        return torch.softmax(self.predict_logits(), -1)

    def _log_metrics(self, split: str) -> None:
        metrics = self.evaluate()[split]
        self.log_dict({f"{split}_{name}": value for name, value in vars(metrics).items()}, batch_size=1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep the best round and the progress."""
        checkpoint["rounds"] = {
            "best": vars(self.best),
            "totals": self.totals,
            "seconds": self.seconds,
            "metrics": self.round_metrics,
            "progress": self.progress() if self._running else self._saved_progress,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take them up again."""
        saved = checkpoint.get("rounds")
        if saved is not None:
            self.best = Best(**saved["best"])
            self.totals, self.seconds = saved["totals"], saved["seconds"]
            self.round_metrics = saved["metrics"]
            self._saved_progress, self._running = saved["progress"], False


def _scalars(result: RoundResult) -> dict[str, float]:
    """One flat record of a round; the test split is left for the test."""
    scalars = {
        f"{split}_{name}": value for split in ("train", "val") for name, value in vars(result.metrics[split]).items()
    }
    return scalars | result.scalars
