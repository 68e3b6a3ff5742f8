"""The Lightning adapter of every engine: state, best round, metrics and checkpoints of rounds live here, once."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from pytorch_lightning.callbacks import Checkpoint, Timer
from pytorch_lightning.cli import LRSchedulerCallable
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from gfl_lightning.checks import InputError, require, require_rate
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import Engine, EngineState, Report
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.options import FREE, differences, refuse
from gfl_lightning.lit.predicting import PredictingModule
from gfl_lightning.lit.restoring import taking_up
from gfl_lightning.lit.schedulers import scheduler_in_words
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.report import PrivacyReport

TOTALLED = ("bytes_up", "bytes_down", "printed_bytes_up", "printed_bytes_down", "clients_skipped")


class RoundModule(PredictingModule):
    """A model trained in rounds by an engine, on the client graph of a data set.

    A subclass says which weights training starts from, how the engine of a graph is built and what predicts where
    nobody trains. The parameters are the engine's weights; a callback may put others in between rounds. The rate is
    carried by an optimizer, so that schedulers and monitors of it work; the optimizer itself never steps.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> from gfl_lightning.lit.central import Central
    >>> engine = Central(34, 4).engine_on(KarateClub().graph, rounds=10)
    >>> engine.round(engine.start())[0].round
    1

    Args:
        weights: where training starts, by name.
        num_features: d.
        num_classes: c.
        lr: η.
        lr_scheduler: makes a torch scheduler of η from the carrier; it steps once a round.
    """

    def __init__(
        self,
        weights: Weights,
        num_features: int,
        num_classes: int,
        lr: float,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(weights, num_features, num_classes)
        require_rate("lr", lr)
        self.lr = lr
        self.best = Best()
        self.round_metrics: dict[str, float] = {}
        self.curve: list[tuple[float, float]] = []
        self.totals: dict[str, float] = {}
        self.seconds = 0.0
        self.num_samples = 0
        self._lr_scheduler = lr_scheduler
        self._engine: Engine[Any] | None = None
        self._state: EngineState | None = None
        self._trains = False
        self._prepared_for: tuple[torch.device, torch.dtype] | None = None
        self._loaded_round = 0
        self._loaded_weights: Weights = {}
        self._loaded_progress: dict[str, Any] = {}
        self._scheduler: dict[str, Any] = {}
        self._loaded_scheduler: dict[str, Any] | None = None

    @abstractmethod
    def engine_on(self, graph: ClientGraph, rounds: int) -> Engine[Any]:
        """The engine that trains the model on a graph for so many rounds (−1: nobody knows)."""

    @property
    def may_go_on(self) -> bool:
        """Whether another round is allowed, whatever a trainer wants."""
        return True

    @property
    def is_budgeted(self) -> bool:
        """Whether :attr:`may_go_on` is going to end the rounds, whatever a trainer wants."""
        return False

    @property
    def heeded(self) -> dict[str, float]:
        """How much clients heed each of several models in the mean; nothing where there is one."""
        return {}

    @property
    def privacy(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nobody asked."""
        return None

    @property
    def chosen_parts(self) -> dict[str, Any]:
        """What was chosen in place of stated parts, by the name that a summary gives it."""
        return {}

    def begin_rounds(self, rounds_done: int, progress: dict[str, Any]) -> None:
        """Called before the first round of a fit, with what :meth:`progress` was where a checkpoint is resumed."""

    def end_rounds(self) -> None:
        """Called after the last round of a fit, also where none is left to make, before anybody else is told."""

    def charge_round(self) -> dict[str, float]:
        """Called before each round is made; what it says is logged with the round."""
        return {}

    def told(self, graph: ClientGraph) -> ClientGraph:
        """The data as a report on the fit may look at them: with the labels that training has seen."""
        return graph

    def keep_secrets(self, folder: Path) -> None:
        """Called before a checkpoint is written into a folder: what must not be in it, but is needed to go on."""

    def choose(self, report: Report) -> Best:
        """The round to keep after a round: the one with the lowest validation loss."""
        return self.engine.choose(self.best, self.state, report)

    def require_free_weights(self) -> None:
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

    def prepare(self, graph: ClientGraph, rounds: int | None = None) -> None:
        """Check a graph and build what predicts on it or, for so many ``rounds``, what trains on it."""
        self.require_fit(graph)
        self.num_samples = graph.num_samples
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
            planned = planned_rounds(self.trainer) if self._trains else None
            self.prepare(self.graph, -1 if planned == math.inf else cast(int | None, planned))
            self._prepared_for = place

    def configure_optimizers(self) -> Any:
        """The carrier of the rate, and its scheduler."""
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        scheduler = self._scheduler_of(optimizer)
        self._scheduler, loaded = scheduler_in_words(scheduler), self._loaded_scheduler
        same = loaded is None or loaded == self._scheduler
        require(same, "lr_scheduler", f"be {loaded or None} as in the checkpoint", self._scheduler or None)
        if scheduler is None:
            return optimizer
        schedule = {"scheduler": scheduler, "interval": "step", "monitor": "val_loss"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def _scheduler_of(self, optimizer: torch.optim.Optimizer) -> Any:
        try:
            return None if self._lr_scheduler is None else self._lr_scheduler(optimizer)
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}".splitlines()[0].rstrip(".")
            raise InputError(f"lr_scheduler must make a scheduler of an optimizer, got {reason}.") from failure

    def begin(self) -> None:
        """Called before the first round of a fit: begin, resume what a checkpoint brought, or go on as things stand."""
        done, engine, weights = self.trainer.global_step, self.engine, self.current_weights()
        loaded, self._loaded_progress = self._loaded_progress, {}
        if done == 0:
            loaded, self.best, self.totals, self.seconds = {}, Best(), {}, 0.0
        self.curve = self.curve[:done]
        if loaded:
            bits = [next(iter(found.values())).dtype.itemsize * 8 for found in (self._loaded_weights, weights)]
            require(bits[0] == bits[1], "precision", f"be {bits[0]}-true as in the checkpoint", f"{bits[1]}-true")
            with taking_up("ckpt_path"):
                self._state = engine.resume(done, weights, loaded["engine"])
        elif done > 0 and self._state is not None and self._state.round == done:
            self._state = engine.resume(done, self._state.weights, engine.progress(self._state))
        else:
            self._state = engine.start(weights)
        self.best = self._placed(self.best)
        self.begin_rounds(done, loaded)

    def training_step(self, batch: int, batch_idx: int) -> dict[str, Tensor]:
        """One round, after which the parameters are the new model."""
        started = time.perf_counter()
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        before, spent = self._state_at_the_parameters(), self.charge_round()
        self._state, report = self.engine.round(before, lr)
        self.set_parameters(self._state.weights)
        self.best = self.choose(report)
        self.round_metrics = _metrics(report) | {"lr": lr} | report.scalars | spent
        self.curve.append((self.round_metrics["train_loss"], self.round_metrics["val_loss"]))
        for name in TOTALLED:
            self.totals[name] = self.totals.get(name, 0) + report.scalars.get(name, 0)
        self.seconds += time.perf_counter() - started
        return {"loss": torch.tensor(self.round_metrics["train_loss"])}

    def _state_at_the_parameters(self) -> EngineState:
        """The last round's state, with the weights that a callback has put in since, if one has."""
        if self.holds(self.state.weights):
            return self.state
        self.require_free_weights()
        return self.engine.resume(self.state.round, self.current_weights(), self.engine.progress(self.state))

    def validation_metrics(self) -> dict[str, float]:
        """Metrics of the current parameters: the round's own, unless a callback has put other weights in."""
        if self.holds(self.state.weights):
            return {name: value for name, value in self.round_metrics.items() if name.startswith("val_")}
        return {f"val_{name}": value for name, value in vars(self.evaluate()["val"]).items()}

    def use_best(self) -> None:
        """Make the weights of the best round the parameters."""
        self.set_parameters(self._placed(self.best).weights)

    def round_of_the_parameters(self) -> int:
        """The round that left the parameters: the best, the last, or that of the checkpoint they were loaded from."""
        if self.holds(self._placed(self.best).weights):
            return self.best.round
        if self._state is None:
            if not self.holds_the_loaded:
                self.require_free_weights()
            return self._loaded_round
        if not self.holds(self._state.weights):
            self.require_free_weights()
        return self._state.round

    @property
    def holds_the_loaded(self) -> bool:
        """Whether the parameters are those of the checkpoint that was loaded last, if there is one."""
        now = self.current_weights()
        return all(torch.equal(now[name].cpu().double(), w.double()) for name, w in self._loaded_weights.items())

    def progress(self) -> dict[str, Any]:
        """What a resumed run needs beside the parameters and the best round, in plain containers."""
        return {"engine": self.engine.progress(self.state)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep the best round and the progress."""
        checkpoint["rounds"] = {
            "best": vars(self.best),
            "totals": self.totals,
            "seconds": self.seconds,
            "metrics": self.round_metrics,
            "curve": torch.tensor(self.curve, dtype=torch.float64).view(-1, 2),
            "progress": self._loaded_progress if self._state is None else self.progress(),
            "scheduler": self._scheduler,
            "stopped": stopped_by(self.trainer),
        }
        checkpoint["loops"] = {"fit_loop": {"rounds": checkpoint["global_step"]}}
        if self.half_width is not None:
            checkpoint["half_width"] = self.half_width
        if "callbacks" in checkpoint:
            checkpoint |= getattr(self.trainer.fit_loop, "before_the_end", {})
        for logger in self.trainer.loggers:
            logger.save()  # a log on the disk goes as far as the checkpoint

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take them up again, by the model that they are of."""
        saved, kept = checkpoint["rounds"], checkpoint["hyper_parameters"]
        within: Any = None if self._trainer is None else self.trainer
        for found in () if within is None else differences(dict(self.hparams), kept, "model"):
            if found[0].rpartition(".")[2] not in FREE:
                refuse(found)
        fits = within is not None and within.state.fn == TrainerFn.FITTING
        self._loaded_scheduler = saved["scheduler"] if fits else None
        if not fits:
            checkpoint.pop("loops", None)  # counters of a fit, which nobody else needs
        elif saved["stopped"] is not None:
            within.should_stop = set(saved["stopped"]) <= {one.state_key for one in within.callbacks}
        self.best, self.half_width = Best(**saved["best"]), checkpoint.get("half_width")
        self.totals, self.seconds = saved["totals"], saved["seconds"]
        self.round_metrics = saved["metrics"]
        self.curve = [(train, val) for train, val in saved["curve"].tolist()]
        self._loaded_progress, self._loaded_round = saved["progress"], checkpoint["global_step"]
        self._loaded_weights = checkpoint["state_dict"]
        self._state = self._prepared_for = None

    def _placed(self, best: Best) -> Best:
        """The best weights, which a checkpoint may have brought, where the parameters are."""
        like = next(self.parameters())
        weights = {name: weight.to(like) for name, weight in best.weights.items()}
        return replace(best, weights=weights, client_loss=best.client_loss.to(like), shared=best.shared.to(like))


def planned_rounds(trainer: Any) -> int | float:
    """How many rounds a trainer is to make at most; ∞ where it sets no number."""
    steps = math.inf if trainer.max_steps == -1 else trainer.max_steps
    limit = trainer.limit_train_batches
    return min(steps, limit) if isinstance(limit, int) else steps if limit == 1.0 else int(steps * limit)


def stopped_by(trainer: Any) -> list[str] | None:
    """The callbacks that may have asked a fit to stop: those with a state; ``None`` where none has.

    That time is up is no reason that a checkpoint keeps: a resumed fit may have more.
    """
    timers = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]
    out_of_time = any((left := timer.time_remaining()) is not None and left <= 0 for timer in timers)
    if not trainer.should_stop or out_of_time:
        return None
    asking = [one for one in trainer.callbacks if not isinstance(one, (Checkpoint, Timer)) and one.state_dict()]
    return [callback.state_key for callback in asking]


def _metrics(report: Report) -> dict[str, float]:
    """The metrics of a round in one flat record; the test split is left for the test."""
    return {
        f"{split}_{name}": value for split in ("train", "val") for name, value in vars(report.metrics[split]).items()
    }
