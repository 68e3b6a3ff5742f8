"""The progress of a fit: rounds, on standard error, one line on a terminal and about ten in a file."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lit_types import Fit
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, TQDMProgressBar

from gfl_lightning.lit.progress import RoundProgressBar, progress_line
from gfl_lightning.lit.rounds import FederatedTrainer

SHOWN: dict[str, Any] = {"enable_progress_bar": True}


def rounds(shown: str) -> list[int]:
    return [int(number) for number in re.findall(r"Round +(\d+)", shown)]


@pytest.mark.parametrize(
    ("total", "lines"), [(3, [1, 2, 3]), (50, list(range(5, 51, 5))), (57, [*range(6, 57, 6), 57])]
)
def test_a_file_gets_about_ten_plain_lines_and_the_last_round(
    fit: Fit, capsys: pytest.CaptureFixture[str], total: int, lines: list[int]
) -> None:
    _, module = fit(max_steps=total, **SHOWN)
    shown = capsys.readouterr()
    assert "Round" not in shown.out
    written = [line for line in shown.err.splitlines() if line.startswith("Round")]
    assert [rounds(line)[0] for line in written] == lines
    assert "\r" not in shown.err
    pattern = rf"Round {total}/{total}  100%  [\d.e+]+/s  0:00:00 left  val_loss {module.round_metrics['val_loss']:.4g}"
    assert re.fullmatch(pattern, written[-1])


def test_a_terminal_gets_one_line_that_is_drawn_again(
    fit: Fit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gfl_lightning.lit.progress.SECONDS_PER_UPDATE", 0.0)
    monkeypatch.setenv("COLUMNS", "40")

    class Terminal:
        def __getattr__(self, name: str) -> Any:
            return (lambda: True) if name == "isatty" else getattr(stream, name)

    stream = sys.stderr
    monkeypatch.setattr(sys, "stderr", Terminal())
    fit(max_steps=20, **SHOWN)
    shown = capsys.readouterr().err
    shown = shown[shown.index("\rRound") :]
    assert rounds(shown)[-1] == 20
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    assert all(len(line) <= 39 for line in shown.strip().split("\r"))


def test_a_resumed_fit_goes_on_counting(fit: Fit, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fit(max_steps=10, callbacks=[ModelCheckpoint(tmp_path / "c", save_last=True)], enable_checkpointing=True)
    capsys.readouterr()
    fit(fit={"ckpt_path": tmp_path / "c" / "last.ckpt"}, max_steps=30, **SHOWN)
    assert rounds(capsys.readouterr().err) == list(range(12, 31, 2))


def test_an_unknown_number_of_rounds_has_no_share_and_max_time_is_what_is_left(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, _ = fit(max_steps=-1, max_time=timedelta(seconds=0.3), **SHOWN)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Round")]
    assert line.startswith(f"Round {trainer.global_step}  ")
    assert "%" not in line
    assert "0:00:00 left" in line


def test_an_exception_leaves_the_round_that_was_reached(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    class Stop(Callback):
        def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
            if trainer.global_step == 7:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        fit(max_steps=1000, callbacks=[Stop()], **SHOWN)
    assert rounds(capsys.readouterr().err) == [7]


def test_it_can_be_turned_off_and_replaced(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    fit(max_steps=3, enable_progress_bar=False)
    assert "Round" not in capsys.readouterr().err
    other = TQDMProgressBar()
    trainer = FederatedTrainer(callbacks=[other], logger=False, enable_checkpointing=False, accelerator="cpu")
    assert trainer.progress_bar_callback is other
    bar = RoundProgressBar()
    bar.disable()
    fit(max_steps=3, callbacks=[bar], **SHOWN)
    assert "Round" not in capsys.readouterr().err


def test_a_line_fits_what_is_known() -> None:
    assert progress_line(9, 1000, 0.123, 8056.9, {}) == "Round    9/1000    0%  0.12/s  2:14:17 left"
    assert progress_line(1, float("inf"), 2e9, float("inf"), {"a": 1.0}) == "Round 1  2000000000/s  a 1"
    assert "left" in progress_line(1, 10, 1e-300, 1e300, {})
