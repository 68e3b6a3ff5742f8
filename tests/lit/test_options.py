"""Every option of the trainer and of the commands is seen to act or is refused: a new one must find its place here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from graph_builders import random_clients
from lit_options import BASES, RAGGED, Args, parser
from lit_types import Watch

from gfl_lightning.checks import InputError, require_rate
from gfl_lightning.command_line import EXIT_BAD_INPUT, EXIT_NOTHING
from gfl_lightning.lit import cli
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer

COMMANDS = {
    "fit": {"ckpt_path", "patience", "report"},
    "validate": {"ckpt_path", "verbose"},
    "test": {"ckpt_path", "verbose"},
    "predict": {"ckpt_path", "output"},
}


def test_the_commands_have_no_other_options() -> None:
    for command, own in COMMANDS.items():
        known = set(parser().parse_args([command, *BASES["GFL"]])[command].as_dict())
        assert known == {"config", "seed_everything", "trainer", "model", "data"} | own


REFUSED = {
    "strategy": "ddp",
    "devices": "2",
    "num_nodes": "2",
    "min_epochs": "2",
    "limit_test_batches": "2",
    "limit_predict_batches": "2",
    "overfit_batches": "1",
    "check_val_every_n_epoch": "2",
    "accumulate_grad_batches": "2",
    "gradient_clip_val": "1.0",
    "gradient_clip_algorithm": "norm",
    "use_distributed_sampler": "false",
    "barebones": "true",
    "sync_batchnorm": "true",
    "reload_dataloaders_every_n_epochs": "1",
    "model_registry": "somewhere",
}
STOP = ["--trainer.callbacks+=lit_types.StopAtTwo"]
SEEN: dict[str, tuple[Args, str, str]] = {
    "precision": ([], "64-true", "dtype"),
    "logger": ([], "false", "loggers"),
    "fast_dev_run": ([], "true", "rounds"),
    "max_steps": ([], "3", "rounds"),
    "min_steps": (STOP, "5", "rounds"),
    "callbacks": ([], "lit_types.StopAtTwo", "rounds"),
    "limit_train_batches": ([], "2", "rounds"),
    "limit_val_batches": ([], "0", "validations"),
    "val_check_interval": ([], "1", "validations"),
    "log_every_n_steps": ([], "2", "rows"),
    "enable_checkpointing": ([], "false", "files"),
    "enable_progress_bar": ([], "false", "bar"),
    "enable_model_summary": ([], "true", "printed summary"),
    "deterministic": ([], "true", "deterministic"),
    "benchmark": ([], "true", "benchmark"),
    "profiler": ([], "simple", "profiled"),
    "detect_anomaly": ([], "true", "anomalies"),
    "plugins": ([], "AsyncCheckpointIO", "saving"),
    "default_root_dir": ([], "there", "files"),
    "enable_autolog_hparams": ([], "false", "hyperparameters"),
}
OTHERWISE = {"accelerator", "inference_mode", "max_time"}  # by tests of their own


def test_every_option_of_the_trainer_has_its_place() -> None:
    known = set(parser().parse_args(["fit", *BASES["GFL"]]).fit.trainer.as_dict())
    assert known == set(REFUSED) | set(SEEN) | OTHERWISE
    assert not set(REFUSED) & set(SEEN)


@pytest.mark.parametrize(("option", "value"), REFUSED.items())
def test_what_the_trainer_cannot_do_is_refused(
    option: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *BASES["GFL"], f"--trainer.{option}={value}"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == EXIT_BAD_INPUT
    assert capsys.readouterr().err.startswith(f"error: {option} must be ")
    assert not Path("runs").exists()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Fit five rounds through the command line in a new folder; what can be seen of them."""

    def fit(name: str, *args: str) -> dict[str, Any]:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        watch = ["--trainer.callbacks+=lit_types.Watch"]
        few = ["--trainer.max_steps=5", "--trainer.val_check_interval=2"]
        arguments = [*args, *watch] if any(one.startswith("--trainer.callbacks=") for one in args) else [*watch, *args]
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *BASES["GFL"], *few, *arguments, "--report=false"])
        cli.main()
        shown = capsys.readouterr()
        files = sorted(str(file) for file in Path().rglob("*") if file.is_file())
        logs, kept = list(Path().rglob("metrics.csv")), list(Path().rglob("hparams.yaml"))
        return Watch.seen | {
            "rows": len(pd.read_csv(logs[0])) if logs else 0,
            "files": files,
            "bar": "Round" in shown.err,
            "printed summary": "Total params" in shown.out + shown.err,
            "hyperparameters": [file.read_text() for file in kept],
        }

    return fit


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("option", "context", "value", "where"), [(name, *rest) for name, rest in SEEN.items()])
def test_what_the_trainer_can_do_is_seen(
    watched: Callable[..., Any], option: str, context: Args, value: str, where: str
) -> None:
    try:
        without, changed = watched("a", *context), watched("b", *context, f"--trainer.{option}={value}")
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
    assert changed[where] != without[where], (changed[where], without[where])


@pytest.mark.parametrize("inference", [True, False])
def test_inference_mode_is_how_predictions_are_made(inference: bool) -> None:
    made = parser().instantiate_classes(parser().parse_args(["fit", *BASES["GFL"]])).fit
    trainer = FederatedTrainer(logger=False, enable_progress_bar=False, inference_mode=inference)
    (probability,) = trainer.predict(made.model, made.data)
    assert probability.is_inference() == inference


def test_the_accelerator_is_used_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *BASES["GFL"], "--trainer.accelerator=tpu"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == EXIT_BAD_INPUT


def test_a_fit_without_time_makes_no_round_and_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *BASES["GFL"], "--trainer.max_time=00:00:00:00"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == EXIT_NOTHING
    assert capsys.readouterr().err.endswith("no round was made\n")


def test_verbose_and_output_are_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *args])
        cli.main()
        return capsys.readouterr().out

    run("fit", *BASES["GFL"], "--trainer.max_steps=2", "--trainer.default_root_dir=fitted")
    (best,) = Path("fitted").rglob("best.ckpt")
    for command, metric in (("validate", "val_loss"), ("test", "test_loss")):
        assert metric in run(command, *RAGGED, f"--ckpt_path={best}")
        assert metric not in run(command, *RAGGED, f"--ckpt_path={best}", "--verbose=false")
    run("predict", *RAGGED, f"--ckpt_path={best}", "--output=p.csv")
    assert len(pd.read_csv("p.csv")) == random_clients("sc").num_samples


@pytest.mark.parametrize("name", ["encoder", "aggregator", "local", "personal", "server", "participation", "records"])
def test_a_part_that_is_none_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name} must be given, or left out for its default, got None"):
        GFL(4, 2, **{name: None})


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), "fast", True])
def test_a_rate_that_is_none_is_refused_whatever_its_type(value: Any) -> None:
    with pytest.raises(InputError, match=r"^lr must be positive and finite, got"):
        require_rate("lr", value)


def test_a_rate_that_does_not_fit_32_bits_is_refused() -> None:
    with pytest.raises(InputError, match=r"^lr must be at most 3.4e\+38, as 32 bits hold no more, got 1e\+39"):
        require_rate("lr", 1e39)
