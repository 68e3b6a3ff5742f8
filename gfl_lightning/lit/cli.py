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
from pytorch_lightning.cli import ArgsType, LightningArgumentParser, LightningCLI
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.federation import DivergedError
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.client_tables import ClientTables, TableWarning
from gfl_lightning.lit.data import DNC, ClientGraphData
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.lit.summary import render, summarise, write_summary
from gfl_lightning.reports.client_report import write_report
from gfl_lightning.reports.predictions import prediction_table, require_ending, write_table

MODELS = (GFL, Central, LocalMLPs)  # imported so that the command line knows them by their short names
EXIT_BAD_INPUT, EXIT_DIVERGED, EXIT_INTERRUPTED, EXIT_TERMINATED = 2, 3, 130, 143


class RoundsCLI(LightningCLI):
    """LightningCLI whose `fit` ends by testing the best model and summing up, also when it is interrupted."""

    model: RoundModule
    datamodule: ClientGraphData
    trainer: FederatedTrainer

    def __init__(self) -> None:
        super().__init__(
            model_class=RoundModule,
            datamodule_class=ClientGraphData,
            trainer_class=FederatedTrainer,
            subclass_mode_model=True,
            subclass_mode_data=True,
            auto_configure_optimizers=False,
            seed_everything_default=False,
            save_config_kwargs={"overwrite": True},
            parser_kwargs={"prog": "python -m gfl_lightning"},
            trainer_defaults={
                "logger": {
                    "class_path": "pytorch_lightning.loggers.CSVLogger",
                    "init_args": {"save_dir": "runs", "name": "gfl"},
                },
                "enable_model_summary": False,
            },
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """What the model learns from the data."""
        for name in ("num_features", "num_classes", "num_clients"):
            parser.link_arguments(f"data.{name}", f"model.init_args.{name}", apply_on="instantiate")

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **options: Any) -> LightningArgumentParser:
        """The parser of a command; `predict` may be told where to write."""
        parser = super()._prepare_subcommand_parser(klass, subcommand, **options)
        if subcommand == "predict":
            text = "File of the predictions, .csv or .parquet (default: predictions.csv in the run's folder)."
            parser.add_argument("--output", type=str | None, default=None, help=text)
            self._subcommand_method_arguments[subcommand].append("output")
        return parser

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse the command line."""
        self.config = parser.parse_args(with_defaults(sys.argv[1:]))

    def _parse_ckpt_path(self) -> None:
        """Take the model's options from the checkpoint only where the command line names no model."""
        self._checkpoint = self._read_checkpoint()
        if not any(a.split("=")[0].split(".")[0] in ("-c", "--config", "--model") for a in sys.argv[1:]):
            super()._parse_ckpt_path()
        self._read_tables_as_the_checkpoint()

    def _read_tables_as_the_checkpoint(self) -> None:
        """Give tables the classes and features of the checkpoint's model."""
        command = self.config.subcommand
        data = self.config[command].get("data")
        if self._checkpoint is None or data is None or not data.class_path.endswith(f".{ClientTables.__name__}"):
            return
        if ClientTables.__qualname__ in self._checkpoint and data.init_args.get("encoding") is None:
            data.init_args.encoding = str(self.config[command].ckpt_path)

    def _read_checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint that the command line names, checked before anything is made from it."""
        command = self.config.subcommand
        path = self.config[command].get("ckpt_path")
        if path is None:
            require(command == "fit", "ckpt_path", f"name the checkpoint to {command}", path)
            return None
        require(Path(str(path)).is_file(), "ckpt_path", "name a checkpoint file", path)
        try:
            checkpoint: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        except Exception as unreadable:
            raise InputError(
                f"ckpt_path must be a checkpoint of this program, got {path!r} ({type(unreadable).__name__})."
            ) from unreadable
        require("rounds" in checkpoint, "ckpt_path", "be a checkpoint of this program", path)
        whole = command != "fit" or "optimizer_states" in checkpoint
        require(whole, "ckpt_path", "be a whole checkpoint to resume from, such as last.ckpt", path)
        return checkpoint

    @property
    def folder(self) -> Path:
        """The run's folder, beside the checkpoints that Lightning writes for the first logger."""
        logger = self.trainer.logger
        if logger is None:
            return Path(self.trainer.default_root_dir)
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        return Path(logger.save_dir or self.trainer.default_root_dir) / str(logger.name) / version

    def before_instantiate_classes(self) -> None:
        """Refuse a seed that nothing here would use."""
        seed = self.config[self.config.subcommand].get("seed_everything")
        require(not seed, "seed_everything", "be left out, as the seeds of model and data determine everything", seed)
        output = self.config[self.config.subcommand].get("output")
        if output is not None:
            require_ending(Path(output))

    def instantiate_trainer(self, **options: Any) -> Trainer:
        """The trainer, with checkpoints of the best and the last round unless the user has others in mind."""
        config = self.config_init[self.config.subcommand]["trainer"]
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
        self.model.trainer = self.trainer
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]  # Lightning sets it late
            if isinstance(callback, ProtectingCallback):
                callback.setup(self.trainer, self.model, self.config.subcommand)
        if isinstance(self.model, GFL) and self._checkpoint is not None:
            self.model.on_load_checkpoint(self._checkpoint)
        if self.config.subcommand == "fit":
            TrainingSet.of(self.datamodule.graph)
        self.model.prepare(self.datamodule.graph)
        if isinstance(self.model, GFL) and self.config.subcommand == "fit" and self._checkpoint is None:
            self.model.account.require_a_first_round()
        if self._checkpoint is not None:
            theirs = {name: tuple(weight.shape) for name, weight in self._checkpoint["state_dict"].items()}
            ours = {name: tuple(weight.shape) for name, weight in self.model.state_dict().items()}
            require(theirs == ours, "ckpt_path", f"hold weights of {type(self.model).__name__} {ours}", theirs)

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
        model.setup("test")
        probability = torch.softmax(model.predict_logits(), -1).cpu()
        found = write_report(self.folder, self.datamodule.graph, self.datamodule.names, probability)
        for name, value in found.items():
            print(f"{name.replace('_', ' '):>17}  {value:.4f}")
        print(f"{'files':>17}  {self.folder}")

    def predict(self, model: RoundModule, output: str | None = None, **options: Any) -> None:
        """Write the predicted label and the class probabilities of every sample."""
        probability: Tensor = cast(Any, self.trainer.predict(model, **options))[0]
        file = Path(output) if output else self.folder / "predictions.csv"
        table = prediction_table(self.datamodule.graph, self.datamodule.names, probability)
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
        self.model.setup("test")
        test = self.model.evaluate()["test"]
        summary = summarise(self.trainer, self.model, test, status)
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


def with_defaults(args: list[str]) -> list[str]:
    """Arguments with model and data named where no configuration file and no argument names them.

    They cannot be defaults of the parser: a configuration that names another class would inherit their values.
    """
    if not args or any(a.split("=")[0] in ("-c", "--config", "-h", "--help") for a in args):
        return args
    missing = {"--model": GFL, "--data": DNC}
    named = {a.split("=")[0] for a in args}
    return [args[0], *(f"{key}={kind.__name__}" for key, kind in missing.items() if key not in named), *args[1:]]
