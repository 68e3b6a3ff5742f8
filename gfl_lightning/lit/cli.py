"""``python -m gfl_lightning fit|validate|test|predict --config FILE``: LightningCLI on rounds."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.command_line import EXIT_DIVERGED, EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_TERMINATED, answered
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.graphs.assortativity import assortativity
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.lit.checkpoint_layout import shapes_of
from gfl_lightning.lit.fit_files import write_figures, write_fit_page
from gfl_lightning.lit.folders import keep_logged, refuse_to_overwrite, run_folder, run_of, try_folders
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.parsing import ROOT, ConfiguredCLI
from gfl_lightning.lit.patience import ON_TABLES, Patience
from gfl_lightning.lit.private_flow import PRIVATE
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.lit.refusals import require_an_end
from gfl_lightning.lit.restoring import taking_up
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.summary import collect
from gfl_lightning.reports.client_report import write_report
from gfl_lightning.reports.predictions import prediction_table, write_table
from gfl_lightning.reports.screen import render
from gfl_lightning.reports.summary import write_summary

SCORED = {"validate": Split.VAL, "test": Split.TEST}


class RoundsCLI(ConfiguredCLI):
    """A command line whose `fit` ends by testing the best model and summing up, also when it is interrupted."""

    _best_saver: ModelCheckpoint | None = None
    edges = ""

    def instantiate_trainer(self, **options: Any) -> Trainer:
        """The trainer, with checkpoints of the best and the last round unless the user has others in mind."""
        config = self.config_init[self.config.subcommand]["trainer"]
        config["default_root_dir"] = config.get("default_root_dir") or ROOT
        if config.get("enable_checkpointing") is not False and not config.get("fast_dev_run"):
            own = config.get("callbacks") or []
            own = own if isinstance(own, list) else [own]
            taken = {callback.state_key for callback in own}
            best = self._best_saver = ModelCheckpoint(monitor="val_loss")
            last = ModelCheckpoint(filename="last", every_n_train_steps=50, enable_version_counter=False)
            config["callbacks"] = [*own, *(c for c in (best, last) if c.state_key not in taken)]
        return super().instantiate_trainer(**options)

    def _patience(self) -> list[Patience]:
        """What ends a fit early: on tables, unless the user says otherwise, stops it himself or claims a guarantee."""
        rounds = self.config[self.config.subcommand].get("patience")
        claims = isinstance(self.model, GFL) and self.model.account.claims
        if rounds is None:
            stops = any(isinstance(one, EarlyStopping) for one in cast(Any, self.trainer).callbacks)
            tables = isinstance(self.datamodule.data_set, ClientTables)
            rounds = ON_TABLES if tables and not stops and not claims else 0
        unseen = rounds == 0 or not claims
        require(unseen, "patience", "be 0 under a guarantee, as when a fit stops would tell about its data", rounds)
        return [Patience(rounds)] if self.config.subcommand == "fit" and rounds != 0 else []

    def after_instantiate_classes(self) -> None:
        """Refuse data, protection and checkpoints that the model cannot take before anything is written."""
        command, model, trainer = self.config.subcommand, self.model, cast(Any, self.trainer)
        model.trainer, trainer.datamodule = trainer, self.datamodule
        for callback in trainer.callbacks:
            if isinstance(callback, ProtectingCallback):
                callback.setup(trainer, model, command)
        if self._checkpoint is not None:
            model.loaded_from = Path(self.config[command].ckpt_path)
            with taking_up("ckpt_path"):
                model.on_load_checkpoint(self._checkpoint)
        model.setup(command)
        trainer.callbacks = [*self._patience(), *trainer.callbacks]
        if isinstance(model, GFL) and model.account.claims and self._best_saver is not None:
            self._best_saver.monitor = PRIVATE if model.account.validates else None
        if command == "fit":
            require_an_end(trainer, model)
        if command in SCORED:
            there = bool(self.datamodule.graph.mask(SCORED[command]).any())
            require(there, "data", f"hold samples to {command} on, with labels that are known", "none")
        if isinstance(model, GFL) and command == "fit" and self._checkpoint is None:
            model.account.require_a_first_round()
        if self._checkpoint is not None:
            theirs, ours = shapes_of(self._checkpoint["state_dict"]), shapes_of(model.state_dict())
            require(theirs == ours, "ckpt_path", f"hold weights of {type(model).__name__} {ours}", theirs)
        if not trainer.fast_dev_run:
            resumed = self.config[command].get("ckpt_path")
            refuse_to_overwrite(trainer, command, None if resumed is None else str(resumed))
            if command == "fit":
                try_folders(trainer)
            if command == "fit" and self._checkpoint is not None:
                keep_logged(trainer, self._checkpoint["global_step"])

    @property
    def folder(self) -> Path:
        """The run's folder: of a fit its own, of other commands that of the checkpoint unless they name a place."""
        given = self.config[self.config.subcommand]
        if self.config.subcommand != "fit" and not self.trainer.loggers and not given.trainer.default_root_dir:
            return run_of(str(given.ckpt_path)) or run_folder(self.trainer)
        return run_folder(self.trainer)

    def fit(self, model: RoundModule, patience: int | None = None, report: bool = True, **options: Any) -> None:
        """Train, test the best model, sum up."""
        self._tell_of_the_edges()
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

    def _run_subcommand(self, subcommand: str) -> None:
        """Run a command; Lightning ends one that Ctrl-C interrupts with an exit code of its own."""
        try:
            super()._run_subcommand(subcommand)
        except SystemExit as stop:
            sys.exit(EXIT_INTERRUPTED if stop.code == 1 else stop.code)

    def test(self, model: RoundModule, **options: Any) -> None:
        """Test, and write how each client fares."""
        self.trainer.test(model, **options)
        model.on_test_start()
        data = self.datamodule.data_set
        found = write_report(self.folder, data.graph, data.names, model.prediction())
        for name, value in found.items():
            print(f"{name.replace('_', ' '):>17}  {value:.4f}")
        print(f"{'files':>17}  {self.folder}")

    def predict(self, model: RoundModule, output: str | None = None, **options: Any) -> None:
        """Write the predicted label and the class probabilities of every sample, or its number and an interval."""
        prediction: Tensor = self.trainer.predict(model, **options)[0]
        file = Path(output) if output else self.folder / "predictions.csv"
        data = self.datamodule.data_set
        drawn_anew = isinstance(data, ClientTables) and data.draws_its_split and not self.datamodule.is_trained_on
        table = prediction_table(data.graph, data.names, prediction, model.half_width, not drawn_anew)
        write_table(table, file)
        print(f"predictions of {len(table)} samples: {file}")

    def _tell_of_the_edges(self) -> None:
        """Say before training whether the edges of tables carry signal; not where labels are private."""
        data, model = self.datamodule.data_set, self.model
        if isinstance(data, ClientTables) and isinstance(model, GFL) and not model.is_private:
            self.edges = assortativity(data.graph).sentence
            print(f"{'edges':>14}  {self.edges}")

    def _sum_up(self, status: str) -> None:
        """Test the best model, keep it, and write and print the summary; nothing if no round was made."""
        if self.trainer.global_step == 0:
            print("no round was made", file=sys.stderr)
            if status == "finished":
                sys.exit(EXIT_NOTHING)
            return
        keep = bool(self.trainer.checkpoint_callbacks)
        if status == "finished" and keep:
            self.trainer.save_checkpoint(self.folder / "checkpoints" / "last.ckpt", weights_only=False)
        self.model.use_best()
        self.model.on_test_start()
        self.model.calibrate()
        test = self.model.evaluate()["test"]
        summary = collect(self.trainer, self.model, self.datamodule, test, status).record()
        if not self.trainer.fast_dev_run:
            tested = {f"test_{name}": value for name, value in vars(test).items()}
            for logger in self.trainer.loggers:
                logger.log_metrics(tested, self.trainer.global_step)
                logger.finalize("success")
            if keep:
                self.trainer.save_checkpoint(self.folder / "best.ckpt", weights_only=True)
            write_summary(self.folder, summary)
        print(render(summary, None if self.trainer.fast_dev_run else self.folder), flush=True)
        if not self.trainer.fast_dev_run and self.config.fit.report:
            write_figures(self.folder, self.model, self.datamodule.graph)
            left = (summary, self.edges, sys.argv[1:])
            write_fit_page(self.folder, self.model, self.datamodule.data_set, *left)
        if math.isnan(test.loss) and bool(self.datamodule.graph.mask(Split.TEST).any()):
            print("the test score is no number", file=sys.stderr)
            sys.exit(EXIT_NOTHING)


def main(command_line: Callable[[], object] = RoundsCLI) -> None:
    """Run, and turn what the user can mend into one sentence and exit code 2."""
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
    with answered(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")
        warnings.filterwarnings("ignore", message="(?s).*does not round-trip")  # parts make tuples of lists
        command_line()
