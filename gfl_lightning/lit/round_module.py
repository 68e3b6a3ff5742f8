"""The Lightning adapter of every engine: state, best round, metrics, tests and checkpoints live here, once."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor, nn

from gfl_lightning.checks import require, require_rate
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import Engine, EngineState, Predictor, Report
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.options import rebuilt, require_own
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.report import PrivacyReport

TOTALLED = ("bytes_up", "bytes_down", "printed_bytes_up", "printed_bytes_down")
M = TypeVar("M", bound="RoundModule")


class RoundModule(LightningModule):
    """A model trained in rounds by an engine, on the client graph of a data set.

    A subclass says which weights training starts from, how the engine of a graph is built and what predicts where
    nobody trains. The weights are the module's parameters under the engine's names; a callback may put others in between
    rounds. The rate is carried by an optimizer, so that schedulers and monitors of it work; it never steps.

    Args:
        weights: where training starts, by name.
        num_features: d.
        num_classes: c.
        lr: η.
        lr_scheduler: makes a torch scheduler of η from the carrier; it steps once a round.
    """

    models_per_client = False
    """Whether every client has a model of its own, so that a checkpoint is for its clients alone."""

    def __init__(
        self,
        weights: Weights,
        num_features: int,
        num_classes: int,
        lr: float,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__()
        require_rate("lr", lr)
        self.num_features, self.num_classes, self.lr = num_features, num_classes, lr
        self.best = Best()
        self.round_metrics: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.seconds = 0.0
        self._lr_scheduler = lr_scheduler
        self._engine: Engine[Any] | None = None
        self._predictor: Predictor | None = None
        self._state: EngineState | None = None
        self._trains = False
        self._prepared_for: tuple[torch.device, torch.dtype] | None = None
        self._loaded_round = 0
        self._loaded_progress: dict[str, Any] = {}
        for name, weight in weights.items():
            _register(self, name, weight)

    @abstractmethod
    def engine_on(self, graph: ClientGraph, rounds: int) -> Engine[Any]:
        """The engine that trains the model on a graph for so many rounds (−1: nobody knows)."""

    @abstractmethod
    def predictor_on(self, graph: ClientGraph) -> Predictor:
        """What predicts on a graph, also where nobody trains."""

    @property
    def may_go_on(self) -> bool:
        """Whether another round is allowed, whatever a trainer wants."""
        return True

    @property
    def privacy(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nobody asked."""
        return None

    def begin_rounds(self, rounds_done: int) -> None:
        """Called before the first round of a fit."""

    def charge_round(self) -> dict[str, float]:
        """Called before each round is made; what it says is logged with the round."""
        return {}

    def require_any_weights(self) -> None:
        """Called before weights that no round left are trained or evaluated."""

    @property
    def engine(self) -> Engine[Any]:
        """The engine of the last fit."""
        assert self._engine is not None, "the engine exists once a fit is set up"
        return self._engine

    @property
    def state(self) -> EngineState:
        """The engine's state after the last round."""
        assert self._state is not None, "the state exists once a fit has begun"
        return self._state

    @property
    def graph(self) -> ClientGraph:
        """The client graph of the data, on the module's device and in its precision."""
        data = getattr(self.trainer, "datamodule", None)
        require(hasattr(data, "graph"), "datamodule", "be a data set, which makes a client graph", data)
        assert data is not None
        parameter = next(self.parameters())
        return data.graph.to(parameter.device).to(parameter.dtype)

    def current_weights(self) -> Weights:
        """The parameters by name, without gradients."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def prepare(self, graph: ClientGraph, rounds: int | None = None) -> None:
        """Check a graph and build what predicts on it or, for so many ``rounds``, what trains on it."""
        found, own = (graph.num_features, graph.num_classes), (self.num_features, self.num_classes)
        require(found == own, "graph", f"have {own[0]} features and {own[1]} classes, as the model has", graph)
        if rounds is None:
            self._predictor = self.predictor_on(graph)
        else:
            self._predictor = self._engine = self.engine_on(graph, rounds)

    def setup(self, stage: str) -> None:
        """Lightning's hook: refuse unfit data before anything long begins."""
        self._trains, self._prepared_for = stage == "fit", None
        self._prepare_where_the_parameters_are()

    def on_fit_start(self) -> None:
        """Lightning's hook, after the module was moved to its device and precision."""
        self._prepare_where_the_parameters_are()

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    def _prepare_where_the_parameters_are(self) -> None:
        parameter = next(self.parameters())
        place = (parameter.device, parameter.dtype)
        if self._prepared_for != place:
            self.prepare(self.graph, self.trainer.max_steps if self._trains else None)
            self._prepared_for = place

    def configure_optimizers(self) -> Any:
        """The carrier of the rate, and its scheduler."""
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        if self._lr_scheduler is None:
            return optimizer
        schedule = {"scheduler": self._lr_scheduler(optimizer), "interval": "step", "monitor": "val_loss"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_train_start(self) -> None:
        """Begin, resume what a checkpoint brought, or go on with the state at hand."""
        done, loaded = self.trainer.global_step, self._loaded_progress
        self._loaded_progress = {}
        weights, engine = self.current_weights(), self.engine
        if done == 0:
            self.best, self.totals, self.seconds = Best(), {}, 0.0
            self._state = engine.start(weights)
        elif loaded:
            self._state = engine.resume(done, weights, loaded["engine"])
        elif self._state is not None and self._state.round == done:
            self._state = engine.resume(done, self._state.weights, engine.progress(self._state))
        else:
            self._state = engine.start(weights)
        self._place_best()
        self.begin_rounds(done)

    def training_step(self, batch: int, batch_idx: int) -> dict[str, Tensor]:
        """One round, after which the parameters are the new model."""
        started = time.perf_counter()
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        spent, before = self.charge_round(), self._state_at_the_parameters()
        self._state, report = self.engine.round(before, lr)
        self._set_parameters(self._state.weights)
        self.best = self.engine.choose(self.best, self._state, report)
        self.round_metrics = _scalars(report) | {"lr": lr} | report.scalars | spent
        for name in TOTALLED:
            self.totals[name] = self.totals.get(name, 0) + report.scalars.get(name, 0)
        self.seconds += time.perf_counter() - started
        return {"loss": torch.tensor(self.round_metrics["train_loss"])}

    def _state_at_the_parameters(self) -> EngineState:
        """The last round's state, with the weights that a callback has put in since, if one has."""
        if self._holds(self.state.weights):
            return self.state
        self.require_any_weights()
        return self.engine.resume(self.state.round, self.current_weights(), self.engine.progress(self.state))

    def validation_metrics(self) -> dict[str, float]:
        """Metrics of the current parameters: the round's own, unless a callback has put other weights in."""
        if self._holds(self.state.weights):
            return {name: value for name, value in self.round_metrics.items() if name.startswith("val_")}
        return {f"val_{name}": value for name, value in vars(self.evaluate()["val"]).items()}

    def use_best(self) -> None:
        """Make the weights of the best round the parameters."""
        with torch.no_grad():
            for name, weight in self.best.weights.items():
                parameter = self.get_parameter(name)
                parameter.data = weight.to(parameter.device).clone()

    def predict_logits(self) -> Tensor:
        """Logits of every sample at the parameters ``[S, c]``, shared as in the round that they come from."""
        assert self._predictor is not None, "there is something that predicts once data are set up"
        return self._predictor.logits_of(self.current_weights(), self._round_of_the_parameters())

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split at the parameters."""
        assert self._predictor is not None, "there is something that predicts once data are set up"
        return self._predictor.metrics_of(self.current_weights(), self._round_of_the_parameters())

    def _round_of_the_parameters(self) -> int:
        """The round that left the parameters: the best, the last, or that of the checkpoint they were loaded from."""
        if self._holds(self.best.weights):
            return self.best.round
        if self._state is None:
            return self._loaded_round
        if not self._holds(self._state.weights):
            self.require_any_weights()
        return self._state.round

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
            "progress": self._loaded_progress if self._state is None else self.progress(),
        }

    def progress(self) -> dict[str, Any]:
        """What a resumed run needs beside the parameters and the best round: plain containers."""
        return {"engine": self.engine.progress(self.state)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take them up again."""
        saved = checkpoint.get("rounds")
        if saved is not None:
            require_own(checkpoint)
            self.best = Best(**saved["best"])
            self.totals, self.seconds = saved["totals"], saved["seconds"]
            self.round_metrics = saved["metrics"]
            self._loaded_progress, self._loaded_round = saved["progress"], checkpoint["global_step"]
            self._state = self._prepared_for = None

    @classmethod
    def load_from_checkpoint(cls: type[M], checkpoint_path: Any, **options: Any) -> M:  # type: ignore[override]
        """A module from a checkpoint, as Lightning's, with its parts built from their descriptions."""
        if isinstance(checkpoint_path, (str, Path)):
            checkpoint = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
            require_own(checkpoint, "checkpoint_path")
            options = rebuilt(cls, checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_KEY, {})) | options
        return super().load_from_checkpoint(checkpoint_path, **options)  # type: ignore[misc]

    def _holds(self, weights: Weights) -> bool:
        """Whether the parameters are these weights."""
        now = self.current_weights()
        return bool(weights) and all(torch.equal(now[name], weight) for name, weight in weights.items())

    def _set_parameters(self, weights: Weights) -> None:
        """Copy weights into the parameters, which callbacks may overwrite; they take their layout: copying is cheap."""
        for name, weight in weights.items():
            parameter = self.get_parameter(name)
            if parameter.stride() == weight.stride():
                parameter.data.copy_(weight)
            else:
                parameter.data = weight.clone()

    def _place_best(self) -> None:
        """Move the best weights, which a checkpoint may have brought, to where the parameters are."""
        like = next(self.parameters())
        weights = {name: weight.to(like) for name, weight in self.best.weights.items()}
        self.best = replace(self.best, weights=weights, client_loss=self.best.client_loss.to(like))


def _scalars(report: Report) -> dict[str, float]:
    """The metrics of a round in one flat record; the test split is left for the test."""
    return {
        f"{split}_{name}": value for split in ("train", "val") for name, value in vars(report.metrics[split]).items()
    }


def _register(module: nn.Module, name: str, weight: Tensor) -> None:
    """Make a weight a parameter under its name, whose dots are modules within modules."""
    outer, _, inner = name.partition(".")
    if not inner:
        module.register_parameter(name, nn.Parameter(weight, requires_grad=False))
        return
    if outer not in dict(module.named_children()):
        module.add_module(outer, nn.Module())
    _register(module.get_submodule(outer), inner, weight)
