"""Resuming is exact under schedulers, stopping callbacks, averages, noise, repeated interruptions, and in the log."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lit_types import Fit
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint, WeightAveraging
from torch.optim import lr_scheduler

from gfl_lightning.federated.participation import Participation
from gfl_lightning.lit import cli
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection

ROUNDS, EVERY = 31, 5
NOISE = Protection(Gaussian(0.5, 1.0), Gaussian(0.5, 1.0), Gaussian(0.1, 1.0), validation=Gaussian(0.1, 1.0))
Make = Callable[[], list[Callback]]


class InterruptionError(RuntimeError):
    """An interruption."""


class Interrupt(Callback):
    """Fails after a round, once everything that belongs to it is done but the checkpoint of a later one."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
        if trainer.global_step == self.after:
            raise InterruptionError


def stopping() -> list[Callback]:
    return [EarlyStopping("val_loss", min_delta=0.004, patience=2)]


def stopping_privately() -> list[Callback]:
    return [EarlyStopping("private_val_loss", min_delta=0.004, patience=2)]


def nothing() -> list[Callback]:
    return []


def averaging() -> list[Callback]:
    return [WeightAveraging(), *stopping()]


CASES: dict[str, tuple[dict[str, Any], Make]] = {
    "early stopping": ({}, stopping),
    "plateau": ({"lr_scheduler": partial(lr_scheduler.ReduceLROnPlateau, patience=0, threshold=0.01)}, nothing),
    "plateau and stopping": ({"lr_scheduler": partial(lr_scheduler.ReduceLROnPlateau, patience=1)}, stopping),
    "steps": ({"lr_scheduler": partial(lr_scheduler.StepLR, step_size=4)}, stopping),
    "cosine": ({"lr_scheduler": partial(lr_scheduler.CosineAnnealingLR, T_max=ROUNDS)}, nothing),
    "milestones": ({"lr_scheduler": partial(lr_scheduler.MultiStepLR, milestones=[6, 17])}, nothing),
    "one cycle": ({"lr_scheduler": partial(lr_scheduler.OneCycleLR, max_lr=1.0, total_steps=40)}, nothing),
    "averaging": ({}, averaging),
    "noise": ({"protection": NOISE, "noise_seed": 1, "participation": Participation(share=0.5)}, stopping_privately),
}


def saved(trainer: FederatedTrainer, module: GFL) -> dict[str, Any]:
    """Everything that a checkpoint would hold, but times and the names of files and runs."""
    whole = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    whole["callbacks"] = {name: state for name, state in whole["callbacks"].items() if "Checkpoint" not in name}
    whole["rounds"] = {**whole["rounds"], "seconds": 0, "stopped": trainer.should_stop}
    if "protection" in whole:  # the name of a run on a ledger is drawn anew for every run
        whole["protection"] = {**whole["protection"], "run": ""}
    return whole | {"report": None if module.privacy is None else module.privacy.as_dict()}


def assert_same(a: Any, b: Any, place: str = "") -> None:
    """Fail where two nested structures differ by a bit."""
    if isinstance(a, dict) and isinstance(b, dict):
        assert a.keys() == b.keys(), place
        for name in a:
            assert_same(a[name], b[name], f"{place} {name}")
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        assert len(a) == len(b), place
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            assert_same(one, other, f"{place} {number}")
    else:
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, f"{place}: {a} is not {b}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("interruptions", [[12], [20], [7, 15, 16, 29]])
def test_interrupted_runs_end_as_whole_ones(fit: Fit, tmp_path: Path, case: str, interruptions: list[int]) -> None:
    model, make = CASES[case]
    limits: dict[str, Any] = {"max_steps": ROUNDS, "val_check_interval": EVERY}
    whole = saved(*fit(model, callbacks=make(), **limits))
    last = tmp_path / "c" / "last.ckpt"
    for after in interruptions:
        saving = ModelCheckpoint(
            tmp_path / "c", "last", every_n_train_steps=EVERY, save_top_k=1, enable_version_counter=False
        )
        callbacks = [*make(), saving, Interrupt(after)]
        options = {"ckpt_path": last} if last.exists() else {}
        try:
            fit(model, options, callbacks=callbacks, enable_checkpointing=True, **limits)
        except InterruptionError:
            continue
        assert whole["global_step"] <= after  # it was stopped before
    resumed = saved(*fit(model, {"ckpt_path": last}, callbacks=make(), **limits))
    assert_same(resumed, whole)


@pytest.mark.parametrize("case", ["plateau", "early stopping"])
def test_a_longer_fit_is_not_told_that_a_shorter_one_ended(fit: Fit, tmp_path: Path, case: str) -> None:
    """The event after the last round, which a longer fit would not have, leaves no trace in the checkpoint."""
    model, make = CASES[case]
    limits: dict[str, Any] = {"val_check_interval": EVERY}
    whole = saved(*fit(model, callbacks=make(), max_steps=13, **limits))
    trainer, _ = fit(model, callbacks=make(), max_steps=8, **limits)
    trainer.save_checkpoint(tmp_path / "eight.ckpt")
    longer = saved(*fit(model, {"ckpt_path": tmp_path / "eight.ckpt"}, callbacks=make(), max_steps=13, **limits))
    assert_same(longer, whole)


SMALL = ["--data.num_clients=60", "--data.num_features=10", "--model.encoder.hidden=[8]", "--trainer.max_steps=120"]
FIXED = ["--trainer.logger=CSVLogger", "--trainer.logger.save_dir=runs", "--trainer.logger.version=fixed"]
STOPPING = [
    "--trainer.callbacks=EarlyStopping",
    "--trainer.callbacks.monitor=val_loss",
    "--trainer.callbacks.patience=2",
    "--trainer.enable_progress_bar=false",
]


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as stream:
        return [{name: value for name, value in row.items() if value} for row in csv.DictReader(stream)]


@pytest.mark.parametrize("interrupted", [57, 100, 113])
def test_the_log_of_an_interrupted_fit_is_that_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], interrupted: int
) -> None:
    def run(folder: str, *arguments: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *SMALL, *STOPPING, *FIXED, *arguments])
        cli.main()

    run("whole")
    stop = [f"--trainer.callbacks+={__name__}.Interrupt", f"--trainer.callbacks.after={interrupted}"]
    sys.modules.setdefault(__name__, sys.modules[Interrupt.__module__])
    with pytest.raises(InterruptionError):
        run("parts", *stop)
    folder = Path("runs/gfl/fixed")
    run("parts", "--ckpt_path", str(folder / "checkpoints/last.ckpt"))
    whole, parts = tmp_path / "whole" / folder, tmp_path / "parts" / folder
    assert rows(parts) == rows(whole)
    summaries = [json.loads((one / "summary.json").read_text()) | {"seconds": 0} for one in (whole, parts)]
    assert summaries[0] == summaries[1]
    kept = (parts / "summary.json").read_bytes()
    for arguments in ([], ["--trainer.logger=false", "--trainer.default_root_dir", str(folder)]):
        with pytest.raises(SystemExit) as refused:
            run("parts", *arguments)
        assert refused.value.code == 2
        assert "a folder without the results of another run" in capsys.readouterr().err
    assert (parts / "summary.json").read_bytes() == kept


def test_a_schedule_may_end_at_zero_where_nobody_moves(fit: Fit) -> None:
    """PolynomialLR and CosineAnnealingLR come to 0; the fit goes on, and its model stays."""
    model = {"lr_scheduler": partial(lr_scheduler.PolynomialLR, total_iters=4)}
    trainer, module = fit(model, max_steps=9)
    _, early = fit(model, max_steps=4)
    assert trainer.global_step == 9
    assert module.round_metrics["lr"] == 0.0
    for name, weight in module.current_weights().items():
        torch.testing.assert_close(weight, early.current_weights()[name], atol=1e-5, rtol=0)
