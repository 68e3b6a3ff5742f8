"""What goes wrong on the command line: one sentence and an exit code, whatever failed and wherever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gfl_lightning.command_line import EXIT_BAD_INPUT
from gfl_lightning.lit import cli
from gfl_lightning.lit.failures import option_behind, sentence_of

SMALL = ["--data.num_clients=50", "--data.num_features=5", "--trainer.enable_progress_bar=false"]
STEP = ["--model.lr_scheduler=torch.optim.lr_scheduler.StepLR"]
CASES: list[tuple[list[str], str]] = [
    (["--trainer.max_steps=-1"], "max_steps must be a number of rounds where neither max_time, nor a budget, nor a"),
    (["--trainer.max_steps=3", "--trainer.min_steps=4"], "min_steps must lie between 0 and max_steps (3), got 4."),
    (["--trainer.default_root_dir=/proc/here"], "files must be readable and writable, got '/proc/here"),
    (["--trainer.default_root_dir=/dev/null/x"], "files must be readable and writable, got"),
    (["--trainer.default_root_dir=a\0b"], "files must be readable and writable, got a name with a null byte."),
    (["--data.num_clients=4611686018427387904"], "num_clients must need no more memory than the "),
    (["--data.num_features=1000000000000"], "num_features must need no more memory than the "),
    (["--model.encoder.hidden=[2000000000]"], "encoder must need no more memory than the "),
    (["--model.aggregator.M=1000000000"], "M must be at most 10000, got 1000000000."),
    (["--model.local.steps=1000000000"], "steps (I) must be at most 100000, got 1000000000."),
    ([*STEP, "--model.lr_scheduler.step_size=0"], "model.lr_scheduler must name what works, got ZeroDivisionError"),
    (
        ["--model.lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau", "--model.lr_scheduler.factor=2"],
        "lr_scheduler must make a scheduler",
    ),
    (["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=nothing"], "trainer.callbacks must name what"),
    (["--trainer.max_time=soon"], "max_time must be days:hours:minutes:seconds, got 'soon'."),
    (
        ["--trainer.profiler=nothing"],
        "profiler must be one of simple, advanced, pytorch, or a profiler, got 'nothing'.",
    ),
    (["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.dirpath=/proc/x"], "files must be readable and wr"),
    (["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.dirpath=memory://x"], "dirpath must be a folder of"),
    (["--model.participation.train=51"], "train must be at most "),
    (["--model.participation.share=51"], "share must be at most 50, the clients there are, got 51."),
    (
        ["--trainer.logger=nothing"],
        "trainer.logger must be a class by its name or a list or true or false or null, got",
    ),
    (["--model.estimator=v9"], "estimator must be one of compensated, v1, exact, got v9."),
    (["--model.local=ten"], "local must be options by name, got"),
    (["--model.local=null"], "local must be given, or left out for its default, got None."),
    (["--data.num_clients=null"], "num_clients must be given, or left out for its default, got None."),
    (["--model.local.steps=ten"], "local.steps must be a whole number, got ten."),
    (["--model.aggregator=Nothing"], "aggregator must be a class by its name, got Nothing."),
    (["--model.lr_scheduler=nothing.At.all"], ""),
    (["--model.local.lr=0.1", "--config=c.yaml"], "options must stand after --config, whose values would replace"),
    (["--model.encoder.hidden=[]", "--model.encoder.activation=tanh"], "activation must be left out where there is no"),
]


@pytest.mark.parametrize(("arguments", "sentence"), CASES, ids=lambda one: str(one)[:40])
def test_a_failure_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text("model: {class_path: GFL}\ndata: {class_path: DNC}\n")
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *SMALL, *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    shown = capsys.readouterr()
    assert stop.value.code == EXIT_BAD_INPUT
    errors = [line for line in shown.err.splitlines() if not line.startswith(("warning", "/"))]
    assert [line[: len(sentence) + 7] for line in errors if line.startswith("error")] == [f"error: {sentence}"], (
        shown.err
    )
    assert "usage" not in shown.err


@pytest.mark.parametrize("name", ["trainer", "model", "data"])
def test_a_section_that_holds_no_options_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"model": "{class_path: GFL}", "data": "{class_path: DNC}"} | {name: "3"}
    (tmp_path / "c.yaml").write_text("".join(f"{section}: {value}\n" for section, value in whole.items()))
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", f"--config={tmp_path}/c.yaml"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert (error.startswith(f"error: {name} "), error.count("\n")) == (True, 1), error


def test_a_number_of_clients_can_be_said_in_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(
        "model: {class_path: GFL, init_args: {participation: {train: 2, share: 3}, encoder: {hidden: [4]}}}\n"
        "data: {class_path: DNC, init_args: {num_clients: 50, num_features: 5}}\n"
        "trainer: {max_steps: 2, enable_progress_bar: false}\n"
    )
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", "--config=c.yaml"])
    cli.main()
    rows = (tmp_path / "runs/gfl/version_0/metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("clients_trained")
    assert rows[1].split(",")[column] == "2.0"


def failing(raise_it: Callable[[], object]) -> Exception:
    try:
        raise_it()
    except Exception as error:
        return error
    raise AssertionError("nothing failed")


def test_an_error_of_the_program_keeps_its_traceback() -> None:
    assert sentence_of(failing(lambda: cli.RoundsCLI.folder.fget(None))) is None  # type: ignore[attr-defined]
    assert option_behind(failing(lambda: {}["x"])) is None
    assert sentence_of(OSError(28, "No space left on device", "f")) == (
        "files must be readable and writable, got 'f' No space left on device."
    )


@pytest.mark.parametrize("wait", [0.0, 1.0, 2.5])
def test_ctrl_c_while_the_program_starts_says_nothing(tmp_path: Path, wait: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gfl_lightning", "fit", *SMALL, "--trainer.max_steps=100000"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():  # Python itself has started
        time.sleep(0.01)
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert "Traceback" not in errors, errors
    assert process.returncode in (130, -signal.SIGINT)
