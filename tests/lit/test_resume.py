"""Resuming: interrupted anywhere and taken up again, a run ends exactly as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lit_types import Fit
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, WeightAveraging

from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial

OPTIONS: list[dict[str, Any]] = [
    {},
    {"local": LocalTraining(steps=2, batch_size=1), "seed": 4},
    {"participation": Participation(0.5, 0.3)},
    {"server": FedAdam(lr=0.1)},
    {"aggregator": LearnablePolynomial(M=3)},
    {"participation": Participation(share=5), "server": Momentum(), "protocol": "gram"},
]


class InterruptionError(RuntimeError):
    """An interruption."""


class Interrupt(Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
        if trainer.global_step == self.after:
            raise InterruptionError


def outcome(module: GFL) -> dict[str, Any]:
    return {
        "weights": {name: parameter.detach().clone() for name, parameter in module.named_parameters()},
        "best": vars(module.best),
        "metrics": module.round_metrics,
        "totals": module.totals,
        "uploaded_in": module.state.uploaded_in,
    }


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("model", OPTIONS)
@pytest.mark.parametrize("interrupted_after", [5, 8, 13])
def test_a_resumed_run_ends_bit_for_bit_like_an_uninterrupted_one(
    fit: Fit, tmp_path: Path, model: dict[str, Any], interrupted_after: int
) -> None:
    _, whole = fit(model, max_steps=15)
    saving = ModelCheckpoint(tmp_path / "ckpt", every_n_train_steps=4, save_top_k=-1, save_last=True)
    with pytest.raises(InterruptionError):
        fit(model, max_steps=15, callbacks=[saving, Interrupt(interrupted_after)], enable_checkpointing=True)
    last = tmp_path / "ckpt" / "last.ckpt"
    trainer, resumed = fit(model, {"ckpt_path": last, "weights_only": True}, max_steps=15)
    assert trainer.global_step == 15
    assert_same(outcome(resumed), outcome(whole))


def test_a_finished_run_can_be_extended(fit: Fit, tmp_path: Path) -> None:
    _, whole = fit(max_steps=12)
    last = tmp_path / "c" / "last.ckpt"
    fit(max_steps=7, callbacks=[ModelCheckpoint(tmp_path / "c", save_last=True)], enable_checkpointing=True)
    trainer, extended = fit(fit={"ckpt_path": last}, max_steps=12)
    assert trainer.global_step == 12
    assert_same(outcome(extended), outcome(whole))
    trainer, _ = fit(fit={"ckpt_path": last}, max_steps=7)
    assert trainer.global_step == 7


def test_a_loaded_model_may_start_anew_and_a_live_one_go_on(fit: Fit, tmp_path: Path, data: DNC) -> None:
    model = {"participation": Participation(share=0.5), "server": Momentum()}
    saving = ModelCheckpoint(tmp_path / "c", save_last=True)
    trainer, whole = fit(model, max_steps=7, callbacks=[saving], enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(tmp_path / "c" / "last.ckpt", weights_only=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    FederatedTrainer(max_steps=3, **quiet).fit(loaded, datamodule=data)  # type: ignore[arg-type]
    assert loaded.state.round == 3
    trainer.fit_loop.epoch_loop.max_steps = 12
    trainer.fit(whole, datamodule=data)
    _, straight = fit(model, max_steps=12)
    assert_same(outcome(whole), outcome(straight))


def test_a_checkpoint_loaded_into_a_trained_module_is_what_it_saves(fit: Fit, tmp_path: Path, data: DNC) -> None:
    model = {"participation": Participation(share=0.5), "server": Momentum()}
    saving = ModelCheckpoint(tmp_path / "c", every_n_train_steps=6, save_last=True)
    _, module = fit(model, max_steps=9, callbacks=[saving], enable_checkpointing=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    idle = FederatedTrainer(max_steps=6, **quiet)  # type: ignore[arg-type]
    idle.fit(module, datamodule=data, ckpt_path=tmp_path / "c" / "last.ckpt")
    idle.save_checkpoint(tmp_path / "again.ckpt", weights_only=False)
    _, resumed = fit(model, {"ckpt_path": tmp_path / "again.ckpt"}, max_steps=12)
    _, whole = fit(model, max_steps=12)
    assert_same(outcome(resumed), outcome(whole))


def test_weight_averaging_survives_a_resume(fit: Fit, tmp_path: Path) -> None:
    _, whole = fit(max_steps=9, callbacks=[WeightAveraging()])
    saving = ModelCheckpoint(tmp_path / "c", every_n_train_steps=4, save_top_k=-1, save_last=True)
    with pytest.raises(InterruptionError):
        fit(max_steps=9, callbacks=[WeightAveraging(), saving, Interrupt(6)], enable_checkpointing=True)
    last = {"ckpt_path": tmp_path / "c" / "last.ckpt"}
    _, resumed = fit(fit=last, max_steps=9, callbacks=[WeightAveraging()])
    assert_same(outcome(resumed), outcome(whole))


SCRIPT = """
import sys, time
from pathlib import Path
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from gfl_lightning import DNC, GFL, FederatedTrainer
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.models.encoders.mlp import MLP

class Slow(Callback):
    def on_train_batch_end(self, trainer, *_):
        (folder / "next").write_text(str(trainer.global_step))
        (folder / "next").replace(folder / "round")
        time.sleep(0.05)

folder = Path(sys.argv[1])
data = DNC(num_clients=60, num_features=10)
saving = ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1, save_last=True)
trainer = FederatedTrainer(max_steps=200, logger=False, callbacks=[saving, Slow()], enable_progress_bar=False,
                           enable_model_summary=False, accelerator="cpu", default_root_dir=folder)
trainer.fit(GFL(10, 2, MLP((8,)), local=LocalTraining(steps=2)), data)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_is_taken_up_from_its_last_checkpoint(
    fit: Fit, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )
    deadline = time.monotonic() + 600
    while not (tmp_path / "last.ckpt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(number)
    process.wait(timeout=600)
    reached = int((tmp_path / "round").read_text())
    assert 3 <= reached < 200
    _, whole = fit(max_steps=30)
    _, resumed = fit(fit={"ckpt_path": tmp_path / "last.ckpt"}, max_steps=30)
    assert_same(outcome(resumed), outcome(whole))
