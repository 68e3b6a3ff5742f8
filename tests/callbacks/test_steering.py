"""Callbacks and schedulers of one's own that steer a fit by exact metrics: the promise ends, or says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from protected_fits import DATA, NOISE, QUIET, TOLD, fit, model
from pytorch_lightning.callbacks import Callback, Checkpoint, EarlyStopping, ModelCheckpoint

from callbacks import DPNoise
from gfl_lightning.checks import InputError
from gfl_lightning.lit.exporting import export
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer

SAVING = QUIET | {"enable_checkpointing": True}


class Stops(Callback):
    """Ends a fit by the exact loss."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        trainer.should_stop = trainer.global_step >= 2 and pl_module.round_metrics["val_loss"] >= 0


def test_a_stop_that_nobody_accounts_for_ends_the_promise(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    report = fit(model(), [DPNoise(**NOISE), Stops(), saving], enable_checkpointing=True).privacy
    assert report is not None
    assert report.epsilon == math.inf
    assert report.gaps == ("when the fit stopped (a callback that nothing is known of asked for it)",)
    last = torch.load(tmp_path / "step=2.ckpt", weights_only=True)
    assert last["privacy"]["epsilon"] == math.inf
    patient = fit(model(), [DPNoise(**TOLD), EarlyStopping("private_val_loss", patience=1, min_delta=1e9)], 30)
    assert patient.privacy is not None
    assert patient.privacy.epsilon < 8


class Steers(Callback):
    """Sets the rate by the exact loss."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        trainer.optimizers[0].param_groups[0]["lr"] *= 0.5 if pl_module.round_metrics["val_loss"] >= 0 else 1.0


class Ends(Callback):
    """Ends a fit by the exact loss without asking it to stop."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        if trainer.global_step >= 2 and pl_module.round_metrics["val_loss"] >= 0:
            trainer.fit_loop.max_batches = trainer.global_step


class Interrupts(Callback):
    """Somebody who watches the exact loss."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        if trainer.global_step >= 2 and pl_module.round_metrics["val_loss"] >= 0:
            raise KeyboardInterrupt


def test_a_fit_under_a_guarantee_ends_as_it_was_planned() -> None:
    report = fit(model(), [DPNoise(**NOISE), Ends()]).privacy
    assert report is not None
    assert report.gaps == ("when the fit stopped (a callback that nothing is known of asked for it)",)
    planned = fit(model(), [DPNoise(**NOISE)], -1, limit_train_batches=3).privacy
    assert planned is not None
    assert planned.epsilon < 2
    assert "in 3 rounds, by" in planned.composed


def test_an_interruption_is_named_and_nothing_leaves_of_it(tmp_path: Path) -> None:
    module, saving = model(), ModelCheckpoint(tmp_path, every_n_train_steps=1, filename="last")
    trainer = FederatedTrainer(max_steps=6, callbacks=[DPNoise(**NOISE), Interrupts(), saving], **SAVING)
    with pytest.raises(SystemExit):
        trainer.fit(module, DATA)
    assert module.privacy is not None
    assert "when the fit was interrupted" in module.privacy.outside
    assert module.privacy.epsilon < 2
    trainer.save_checkpoint(tmp_path / "best.ckpt")
    with pytest.raises(InputError, match=r"be of a whole run .*, got 'when the fit was interrupted'"):
        export(tmp_path / "best.ckpt", tmp_path / "public.ckpt")
    ended = ModelCheckpoint(tmp_path, every_n_train_steps=6, filename="ended")
    fit(model(), [DPNoise(**NOISE), ended], ckpt_path=tmp_path / "last.ckpt", enable_checkpointing=True)
    assert export(tmp_path / "ended.ckpt", tmp_path / "public.ckpt")["epsilon"] == module.privacy.epsilon


def test_a_rate_that_nobody_accounts_for_ends_the_promise() -> None:
    report = fit(model(), [DPNoise(**NOISE), Steers()]).privacy
    assert report is not None
    assert report.gaps == ("the rate (set by something else than its scheduler, which may have seen the data)",)

    def falling(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    scheduled = fit(model(lr_scheduler=falling), [DPNoise(**NOISE)]).privacy
    assert scheduled is not None
    assert scheduled.epsilon < 2


class Hurries(Callback):
    """Lets the scheduler step once more where the exact loss is high."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        if pl_module.round_metrics["val_loss"] >= 0:
            trainer.lr_scheduler_configs[0].scheduler.step()


def test_a_scheduler_keeps_to_its_timetable_or_ends_the_promise() -> None:
    def falling(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

    hurried = fit(model(lr_scheduler=falling), [DPNoise(**NOISE), Hurries()]).privacy
    assert hurried is not None
    assert hurried.gaps == ("the rate (set by something else than its scheduler, which may have seen the data)",)
    watched: list[GFL] = []

    def by_the_loss(_: int) -> float:
        return 0.1 if watched and watched[0].round_metrics.get("val_loss", -1.0) >= 0 else 1.0

    def of_ones_own(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, by_the_loss)

    watched.append(model(lr_scheduler=of_ones_own))
    steered = fit(watched[0], [DPNoise(**NOISE)]).privacy
    assert steered is not None
    assert steered.gaps == ("the rate (LambdaLR is not known to look at time alone)",)


def test_a_saver_of_ones_own_is_named() -> None:
    class Mine(Checkpoint):
        pass

    report = fit(model(), [DPNoise(**NOISE), Mine()], enable_checkpointing=True).privacy
    assert report is not None
    assert "which checkpoints are kept by Mine" in report.outside
