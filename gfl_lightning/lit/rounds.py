"""The Trainer whose `fit` runs communication rounds on a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, ProgressBar

from gfl_lightning.checks import require
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.checkpoint_io import sealing
from gfl_lightning.lit.data import as_datamodule
from gfl_lightning.lit.progress import RoundProgressBar
from gfl_lightning.lit.protecting import refuse_contradictions
from gfl_lightning.lit.refusals import refuse_what_rounds_cannot_do
from gfl_lightning.lit.restoring import RestoringConnector
from gfl_lightning.lit.round_loop import RoundLoop
from gfl_lightning.lit.round_module import RoundModule

File = str | Path | None
Data = DataSet | LightningDataModule | None


class FederatedTrainer(Trainer):
    """A Lightning Trainer whose `fit` runs communication rounds.

    Every argument of ``pytorch_lightning.Trainer`` is accepted; what cannot work with rounds is refused. The data are a
    data set, the second argument or ``datamodule``.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> from gfl_lightning.lit.gfl import GFL
    >>> quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    >>> trainer = FederatedTrainer(max_steps=3, accelerator="cpu", **quiet)
    >>> trainer.fit(GFL(num_features=8, num_classes=2), DNC(num_clients=50, num_features=8))
    >>> trainer.global_step
    3

    Args:
        max_steps: number of rounds; -1 leaves it to `max_time` or callbacks.
        val_check_interval: rounds between two validation events.
        log_every_n_steps: rounds between two entries in the loggers.
        callbacks: Lightning callbacks.
        **kwargs: as in ``pytorch_lightning.Trainer``.
    """

    fast_dev_run: bool | int

    def __init__(
        self,
        *,
        max_steps: int = 300,
        val_check_interval: int = 20,
        log_every_n_steps: int = 1,
        callbacks: list[Callback] | Callback | None = None,
        **kwargs: Any,
    ) -> None:
        callbacks = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or [])
        refuse_what_rounds_cannot_do(kwargs | {"callbacks": callbacks, "max_steps": max_steps})
        refuse_contradictions(callbacks)
        kwargs.pop("check_val_every_n_epoch", None)
        counts = type(max_steps) is int and max_steps >= -1 and max_steps != 0
        require(counts, "max_steps", "be at least 1, or -1 for no limit", max_steps)
        require(
            isinstance(val_check_interval, int) and val_check_interval >= 1,
            "val_check_interval",
            "be a number of rounds of at least 1",
            val_check_interval,
        )
        if kwargs.get("enable_progress_bar") is not False and not any(isinstance(c, ProgressBar) for c in callbacks):
            callbacks.append(RoundProgressBar())
        kwargs["plugins"] = sealing(kwargs.get("plugins"))
        super().__init__(
            max_steps=max_steps,
            max_epochs=-1,
            val_check_interval=val_check_interval,
            log_every_n_steps=log_every_n_steps,
            check_val_every_n_epoch=None,  # with 1 and an interval of 1, callbacks wait for the end of the epoch
            num_sanity_val_steps=0,
            callbacks=callbacks,
            **kwargs,
        )
        self._checkpoint_connector = RestoringConnector(self)
        loop = RoundLoop(self, max_epochs=-1)
        loop.epoch_loop = self.fit_loop.epoch_loop
        self.fit_loop = loop

    def save_checkpoint(
        self, filepath: str | Path, weights_only: bool | None = None, storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint; what must not be in it is kept beside it first."""
        if isinstance(self.lightning_module, RoundModule):
            self.lightning_module.keep_secrets(Path(filepath).parent)
        super().save_checkpoint(filepath, weights_only, storage_options)

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Data = None,
        ckpt_path: File = None,
        weights_only: bool | None = None,
    ) -> None:
        """Train in rounds."""
        data = as_datamodule(train_dataloaders), val_dataloaders, as_datamodule(datamodule)
        super().fit(model, *data, ckpt_path, weights_only)

    def validate(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: File = None,
        verbose: bool = True,
        datamodule: Data = None,
        weights_only: bool | None = None,
    ) -> Any:
        """Metrics on the validation samples."""
        data = as_datamodule(dataloaders), ckpt_path, verbose, as_datamodule(datamodule)
        return super().validate(model, *data, weights_only)

    def test(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: File = None,
        verbose: bool = True,
        datamodule: Data = None,
        weights_only: bool | None = None,
    ) -> Any:
        """Metrics on the test samples."""
        data = as_datamodule(dataloaders), ckpt_path, verbose, as_datamodule(datamodule)
        return super().test(model, *data, weights_only)

    def predict(
        self,
        model: LightningModule | None = None,
        dataloaders: Any = None,
        datamodule: Data = None,
        return_predictions: bool | None = None,
        ckpt_path: File = None,
        weights_only: bool | None = None,
    ) -> Any:
        """Class probabilities of every sample."""
        data = as_datamodule(dataloaders), as_datamodule(datamodule)
        return super().predict(model, *data, return_predictions, ckpt_path, weights_only)
