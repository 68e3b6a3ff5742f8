"""Callbacks and schedulers of one's own that steer a fit by exact metrics: the promise ends, or says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from protected_fits import DATA, NOISE, QUIET, TOLD, fit, model
from pytorch_lightning.callbacks import Callback, Checkpoint, EarlyStopping, ModelCheckpoint

from callbacks import DPNoise, PrivacyBudget
from gfl_lightning.checks import InputError
from gfl_lightning.lit.exporting import export
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.privacy.shared_ledger import SharedLedger

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


BY_OTHERS = "when the fit stopped (a callback that nothing is known of asked for it)"


class Adds(Callback):
    """Lets a callback that stops by the exact loss join once the fit was checked."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        trainer.callbacks.append(EarlyStopping("val_loss", patience=1, min_delta=1e9))


class Pretends(Callback):
    """Tells others a private loss that is none."""

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.log("private_val_loss", torch.tensor(-1e7))


def test_a_stop_is_private_only_if_the_private_loss_says_so() -> None:
    joined = fit(model(), [DPNoise(**NOISE), Adds()], 20, val_check_interval=1)
    stop = EarlyStopping("private_val_loss", patience=100, stopping_threshold=-1e6)
    deceived = fit(model(), [Pretends(), DPNoise(**TOLD), stop], 20, val_check_interval=1)
    for module in (joined, deceived):
        assert module.state.round < 20
        assert module.privacy is not None
        assert module.privacy.gaps == (BY_OTHERS,)


class Reduces(Callback):
    """Lets the scheduler that watches the private loss watch another one."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        trainer.lr_scheduler_configs[0].scheduler.step(100.0 + pl_module.round_metrics["val_loss"])


def test_the_plateau_is_one_of_the_private_loss_alone(tmp_path: Path) -> None:
    def plateau(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=10.0)

    reduced = fit(model(lr_scheduler=plateau), [DPNoise(**TOLD), Reduces()], val_check_interval=4).privacy
    assert reduced is not None
    assert reduced.gaps == ("the rate (set by something else than its scheduler, which may have seen the data)",)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    followed = fit(
        model(lr_scheduler=plateau), [DPNoise(**TOLD), saving], enable_checkpointing=True, val_check_interval=1
    )
    again = fit(model(lr_scheduler=plateau), [DPNoise(**TOLD)], ckpt_path=tmp_path / "three.ckpt", val_check_interval=1)
    for module in (followed, again):
        assert module.round_metrics["lr"] < 0.5
        assert module.privacy is not None
        assert module.privacy.epsilon < 2


class Asks(Callback):
    """Has validation losses told at other rounds than planned: more often, or never."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_start(self, trainer: Any, *_: object) -> None:
        trainer.val_check_interval = self.every


@pytest.mark.parametrize("every", [1, 100])
def test_validation_losses_are_told_as_planned_or_nothing_is_promised(every: int) -> None:
    module = fit(model(), [DPNoise(**TOLD), Asks(every)], 12, val_check_interval=4)
    assert module.privacy is not None
    assert module.privacy.gaps == ("when validation losses were told (at other rounds than planned)",)


class Repeats(Callback):
    """Makes more rounds than are planned."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: int, batch_idx: int) -> None:
        if batch_idx == 1:
            pl_module.training_step(batch, batch_idx)


class Extends(Callback):
    """Moves the end."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        trainer.fit_loop.max_batches = 7


@pytest.mark.parametrize(
    ("callback", "most"), [(Steers(), 50.0), (Stops(), None), (Repeats(), None), (Extends(), None)]
)
def test_a_promise_that_ends_on_the_way_ends_on_the_ledger_too(
    callback: Callback, most: float | None, tmp_path: Path
) -> None:
    """Else other runs would add up what was planned."""
    ledger = tmp_path / "ledger.jsonl"
    report = fit(model(), [DPNoise(**NOISE), callback, PrivacyBudget(most, ledger=str(ledger))], 4).privacy
    assert report is not None
    assert report.epsilon == SharedLedger(ledger).total().epsilon == math.inf


def test_fewer_rounds_than_were_planned_before_spend_no_less(tmp_path: Path) -> None:
    """A fit that was ended by its private loss is none of a shorter plan when it is taken up again."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, filename="last")
    stop = EarlyStopping("private_val_loss", patience=2, min_delta=1e9)
    whole = fit(model(), [DPNoise(**TOLD), stop, saving], 40, enable_checkpointing=True, val_check_interval=2)
    module = model()
    trainer = FederatedTrainer(max_steps=7, val_check_interval=2, callbacks=[DPNoise(**TOLD)], **QUIET)
    trainer.fit(module, DATA, ckpt_path=tmp_path / "last.ckpt")
    assert whole.privacy is not None
    assert module.privacy is not None
    assert module.privacy.epsilon == pytest.approx(whole.privacy.epsilon)
    assert "in 40 rounds, 7 of them made" in module.privacy.composed
    trainer.save_checkpoint(tmp_path / "short.ckpt")
    with pytest.raises(InputError, match=r"be of a whole run .*, got 'the number of rounds \(fewer than the run was"):
        export(tmp_path / "short.ckpt", tmp_path / "public.ckpt")


def test_an_interruption_is_named_whatever_is_done_next(tmp_path: Path) -> None:
    module = model()
    trainer = FederatedTrainer(max_steps=6, callbacks=[DPNoise(**NOISE), Interrupts()], **QUIET)
    with pytest.raises(SystemExit):
        trainer.fit(module, DATA)
    trainer.validate(module, DATA, verbose=False)
    trainer.save_checkpoint(tmp_path / "best.ckpt")
    with pytest.raises(InputError, match=r"be of a whole run .*, got 'when the fit was interrupted'"):
        export(tmp_path / "best.ckpt", tmp_path / "public.ckpt")


def test_the_checkpoint_of_the_last_round_knows_why_it_is_the_last(tmp_path: Path) -> None:
    each = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    last = ModelCheckpoint(tmp_path, save_on_train_epoch_end=True, filename="last")
    fit(model(), [DPNoise(**NOISE), Ends(), each, last], enable_checkpointing=True)
    for name in ("step=2", "last"):
        saved = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert saved["privacy"]["gaps"] == [BY_OTHERS]
