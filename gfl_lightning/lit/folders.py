"""The folder of a run: where its files go, and that they are not those of another run."""

from __future__ import annotations

import csv
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, SaveConfigCallback
from pytorch_lightning.loggers import CSVLogger

from gfl_lightning.checks import InputError, require
from gfl_lightning.whole_files import try_writing, whole_file

RESULTS = ("summary.json", "best.ckpt", "checkpoints", "metrics.csv", "config.yaml")
METRICS = "metrics.csv"


def run_folder(trainer: Trainer) -> Path:
    """The run's folder, beside the checkpoints that Lightning writes for the first logger."""
    logger = trainer.logger
    if logger is None:
        return Path(trainer.default_root_dir)
    version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
    return Path(logger.save_dir or trainer.default_root_dir) / str(logger.name) / version


def run_of(checkpoint: str | Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to; ``None`` where it lies in none."""
    folder = Path(checkpoint).parent
    folder = folder.parent if folder.name == "checkpoints" else folder
    return folder if any((folder / name).is_file() for name in ("summary.json", "config.yaml")) else None


def refuse_to_overwrite(trainer: Trainer, command: str, resumed: str | None) -> None:
    """Refuse a folder with the results of another run; a fit may go on in the folder of its checkpoint."""
    folder, logs = run_folder(trainer), bool(trainer.loggers)
    there = [name for name in RESULTS if (folder / name).exists()]
    own = command == "fit" and resumed is not None and folder.resolve() in Path(resumed).resolve().parents
    if own or not there or not (logs or command == "fit"):
        return
    argument = "trainer.logger.version" if logs else "trainer.default_root_dir"
    raise InputError(
        f"{argument} must lead to a folder without the results of another run, got {str(folder)!r}, which holds "
        f"{', '.join(there)}."
    )


def try_folders(trainer: Trainer) -> None:
    """Fail before any round where a fit is going to fail to write: its own folder, and those of its checkpoints."""
    saving = [one for one in trainer.checkpoint_callbacks if isinstance(one, ModelCheckpoint) and one.dirpath]
    for one in saving:
        require("://" not in str(one.dirpath), "dirpath", "be a folder of this machine", str(one.dirpath))
    for folder in {run_folder(trainer), *(Path(str(one.dirpath)) for one in saving)}:
        try_writing(folder)


def keep_logged(trainer: Trainer, rounds: int) -> None:
    """Let a resumed fit append to the rows that the log in its folder has of earlier rounds; Lightning drops them."""
    for logger in trainer.loggers:
        file = Path(logger.log_dir, METRICS) if isinstance(logger, CSVLogger) else Path()
        if isinstance(logger, CSVLogger) and file.is_file():
            with file.open(newline="") as stream:
                rows = [
                    row for row in csv.DictReader(stream) if row.get("step", "").isdigit() and int(row["step"]) < rounds
                ]
            aside = file.rename(file.with_name(f".{METRICS}"))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Experiment logs directory")  # its rows are put back
                writer = logger.experiment
            writer.metrics_keys = sorted({name for row in rows for name in row if name is not None})
            with whole_file(file) as scratch, scratch.open("w", newline="") as stream:
                table = csv.DictWriter(stream, writer.metrics_keys)
                table.writeheader()
                table.writerows(rows)
            aside.unlink()


class ConfigSaver(SaveConfigCallback):
    """Writes the configuration of a run into its own folder, whole."""

    def __init__(self, parser: LightningArgumentParser, config: Namespace) -> None:
        super().__init__(parser, config, save_to_log_dir=False)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write ``config.yaml``."""
        with whole_file(run_folder(trainer) / self.config_filename) as scratch:
            scratch.write_text(self.parser.dump(_in_words(self.config), skip_none=False), encoding="utf-8")


def _in_words(value: Any) -> Any:
    """A configuration with enumerated values, which some callbacks have as defaults, as the words that they stand for.

    >>> from pytorch_lightning.callbacks.timer import Interval
    >>> _in_words(Namespace(callbacks=[Namespace(interval=Interval.step)]))
    Namespace(callbacks=[Namespace(interval='step')])
    """
    if isinstance(value, Namespace):
        return Namespace({name: _in_words(one) for name, one in vars(value).items()})
    if isinstance(value, dict):
        return {name: _in_words(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_in_words(one) for one in value]
    return value.value if isinstance(value, Enum) else value
