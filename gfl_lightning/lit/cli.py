"""``python -m gfl_lightning fit|validate|test|predict --config FILE``: LightningCLI on rounds."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.graphs.tables.client_tables import TableWarning
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.parsing import ROOT, ConfiguredCLI
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.summary import collect
from gfl_lightning.reports.client_report import write_report
from gfl_lightning.reports.predictions import prediction_table, write_table
from gfl_lightning.reports.screen import render
from gfl_lightning.reports.summary import write_summary

EXIT_BAD_INPUT, EXIT_DIVERGED, EXIT_INTERRUPTED, EXIT_TERMINATED = 2, 3, 130, 143


class RoundsCLI(ConfiguredCLI):
    """A command line whose `fit` ends by testing the best model and summing up, also when it is interrupted."""

    def instantiate_trainer(self, **options: Any) -> Trainer:
        """The trainer, with checkpoints of the best and the last round unless the user has others in mind."""
        config = self.config_init[self.config.subcommand]["trainer"]
        config["default_root_dir"] = config.get("default_root_dir") or ROOT
        if config.get("enable_checkpointing") is not False and not config.get("fast_dev_run"):
            own = config.get("callbacks") or []
            own = own if isinstance(own, list) else [own]
            taken = {callback.state_key for callback in own}
            best = ModelCheckpoint(monitor="val_loss")
            last = ModelCheckpoint(filename="last", every_n_train_steps=50, enable_version_counter=False)
            config["callbacks"] = [*own, *(c for c in (best, last) if c.state_key not in taken)]
        return super().instantiate_trainer(**options)

    def after_instantiate_classes(self) -> None:
        """Refuse data, protection and checkpoints that the model cannot take before anything is written."""
        command, model, trainer = self.config.subcommand, self.model, cast(Any, self.trainer)
        model.trainer, trainer.datamodule = trainer, self.datamodule
        for callback in trainer.callbacks:
            if isinstance(callback, ProtectingCallback):
                callback.setup(trainer, model, command)
        if self._checkpoint is not None:
            model.on_load_checkpoint(self._checkpoint)
        model.setup(command)
        if isinstance(model, GFL) and command == "fit" and self._checkpoint is None:
            model.account.require_a_first_round()
        if self._checkpoint is not None:
            theirs = {name: tuple(weight.shape) for name, weight in self._checkpoint["state_dict"].items()}
            ours = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
            require(theirs == ours, "ckpt_path", f"hold weights of {type(model).__name__} {ours}", theirs)

    @property
    def folder(self) -> Path:
        """The run's folder, beside the checkpoints that Lightning writes for the first logger."""
        logger = self.trainer.logger
        if logger is None:
            return Path(self.trainer.default_root_dir)
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        return Path(logger.save_dir or self.trainer.default_root_dir) / str(logger.name) / version

    def fit(self, model: RoundModule, **options: Any) -> None:
        """Train, test the best model, sum up."""
        try:
            self.trainer.fit(model, **options)
        except SystemExit as stop:
            self._sum_up("interrupted")
            sys.exit(EXIT_TERMINATED if isinstance(stop, SIGTERMException) else EXIT_INTERRUPTED)
        except DivergedError as stop:
            self._sum_up("diverged")
            print(f"error: {stop}", file=sys.stderr)
            sys.exit(EXIT_DIVERGED)
        self._sum_up("finished")

    def test(self, model: RoundModule, **options: Any) -> None:
        """Test, and write how each client fares."""
        self.trainer.test(model, **options)
        model.on_test_start()
        probability = torch.softmax(model.predict_logits(), -1).cpu()
        data = self.datamodule.data_set
        found = write_report(self.folder, data.graph, data.names, probability)
        for name, value in found.items():
            print(f"{name.replace('_', ' '):>17}  {value:.4f}")
        print(f"{'files':>17}  {self.folder}")

    def predict(self, model: RoundModule, output: str | None = None, **options: Any) -> None:
        """Write the predicted label and the class probabilities of every sample."""
        probability: Tensor = self.trainer.predict(model, **options)[0]
        file = Path(output) if output else self.folder / "predictions.csv"
        data = self.datamodule.data_set
        table = prediction_table(data.graph, data.names, probability)
        write_table(table, file)
        print(f"predictions of {len(table)} samples: {file}")

    def _sum_up(self, status: str) -> None:
        """Test the best model, keep it, and write and print the summary; nothing if no round was made."""
        if self.trainer.global_step == 0:
            print("no round was made")
            return
        keep = bool(self.trainer.checkpoint_callbacks)
        if status == "finished" and keep:
            self.trainer.save_checkpoint(self.folder / "checkpoints" / "last.ckpt", weights_only=False)
        self.model.use_best()
        self.model.on_test_start()
        test = self.model.evaluate()["test"]
        summary = collect(self.trainer, self.model, self.datamodule, test, status).record()
        if not self.trainer.fast_dev_run:
            for logger in self.trainer.loggers:
                logger.log_metrics({"test_loss": test.loss, "test_accuracy": test.accuracy}, self.trainer.global_step)
                logger.finalize("success")
            if keep:
                self.trainer.save_checkpoint(self.folder / "best.ckpt", weights_only=True)
            write_summary(self.folder, summary)
        print(render(summary, None if self.trainer.fast_dev_run else self.folder))


def main() -> None:
    """Run, and turn a user's mistake into one sentence and exit code 2."""
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")
            warnings.showwarning = _showing_tables_plainly(warnings.showwarning)
            RoundsCLI()
    except Exception as error:
        mistake = _mistake_behind(error)
        if mistake is None:
            raise
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


def _showing_tables_plainly(show: Callable[..., None]) -> Callable[..., None]:
    """A way to show warnings in which those about the user's tables are one plain sentence."""

    def plainly(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, TableWarning):
            print(f"warning: {message}", file=sys.stderr)
        else:
            show(message, category, *rest)

    return plainly


def _mistake_behind(error: BaseException | None) -> BaseException | None:
    """The user's mistake that an error reports or was raised from: parsers wrap what constructors refuse."""
    while error is not None and not isinstance(error, (InputError, MisconfigurationException)):
        error = error.__cause__ or error.__context__
    return error
