"""A fit's progress in rounds, on standard error: one live line on a terminal, about ten plain lines in a log file."""

from __future__ import annotations

import math
import shutil
import sys
from datetime import timedelta
from time import monotonic
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ProgressBar, Timer

SECONDS_PER_UPDATE = 0.1
PLAIN_LINES = 10
LONGEST = 10**9  # seconds; beyond, dates overflow


def progress_line(done: int, total: float, rate: float, left: float, metrics: dict[str, float]) -> str:
    """Rounds done, their share of the total, rounds per second, seconds left and metrics; what is infinite is left out.

    >>> progress_line(157, 300, 812.4, 1.2, {"val_loss": 0.29312})
    'Round 157/300   52%  812/s  0:00:01 left  val_loss 0.2931'
    >>> progress_line(7, float("inf"), 0.5, float("inf"), {})
    'Round 7  0.5/s'
    """
    known = math.isfinite(total)
    parts = [
        f"Round {done:>{len(str(total))}}/{total}  {math.floor(100 * done / total):>3}%" if known else f"Round {done}",
        f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s",
        *([f"{timedelta(seconds=round(min(left, LONGEST)))} left"] if math.isfinite(left) else []),
        *(f"{name} {value:.4g}" for name, value in metrics.items()),
    ]
    return "  ".join(parts)


class RoundProgressBar(ProgressBar):
    """``Round 157/300   52%  812/s  0:00:01 left  val_loss 0.2931``: what `FederatedTrainer` shows of a fit.

    A terminal's line is redrawn ten times a second. Where standard error is a file, a line is added for every tenth of
    the rounds and for the last one; where their number is unknown, after 1, 4, 16, … seconds. The rate is the average
    since the start of this fit, also of a resumed one. The metrics are those that are logged with ``prog_bar=True``.

    >>> from gfl_lightning.lit.rounds import FederatedTrainer
    >>> trainer = FederatedTrainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    >>> type(trainer.progress_bar_callback).__name__
    'RoundProgressBar'
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_enabled = True
        self._running = False
        self._drawn = ""

    def disable(self) -> None:
        """Show nothing."""
        self.is_enabled = False

    def enable(self) -> None:
        """Show the progress again."""
        self.is_enabled = True

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print above the live line."""
        self._wipe()
        print(*args, **kwargs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock at the rounds that a resumed fit has behind it."""
        self._live = sys.stderr.isatty()
        self._first, self._total = trainer.global_step, trainer.fit_loop.max_batches
        self._running, self._drawn, self._shown = True, "", -1
        self._began = monotonic()
        self._due_round, self._due_time = 0, 0.0
        self._wait(self._first, self._began)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Show the round if it is time to."""
        now, done = monotonic(), trainer.global_step
        if now >= self._due_time and done >= self._due_round:
            self._show(now)
            self._wait(done, now)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the last round and leave its line."""
        self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Show how far an interrupted fit came and leave the line to what others have to say."""
        self._finish()

    def _wait(self, done: int, now: float) -> None:
        """Set when the next line is due, by time or by rounds."""
        if self._live:
            self._due_time = now + SECONDS_PER_UPDATE
        elif math.isfinite(self._total):
            self._due_round = done + math.ceil((self._total - self._first) / PLAIN_LINES)
        else:
            self._due_time = self._began + max(1.0, 4 * (now - self._began))

    def _show(self, now: float) -> None:
        """Write the line of the round just made."""
        if not self.is_enabled:
            return
        done = self._shown = self.trainer.global_step
        rate = (done - self._first) / max(now - self._began, 1e-9)
        left = min([(self._total - done) / rate if rate else math.inf, *self._seconds_allowed()])
        metrics = {name: float(value) for name, value in self.trainer.progress_bar_metrics.items()}
        line = progress_line(done, self._total, rate, left, metrics)
        if self._live:
            line = line[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write("\r" + line.ljust(len(self._drawn)))
            self._drawn = line
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def _seconds_allowed(self) -> list[float]:
        """What `max_time` leaves."""
        timers = [callback for callback in getattr(self.trainer, "callbacks", []) if isinstance(callback, Timer)]
        return [max(0.0, left) for timer in timers if (left := timer.time_remaining()) is not None]

    def _wipe(self) -> None:
        """Take the live line away."""
        if self._drawn:
            sys.stderr.write("\r" + " " * len(self._drawn) + "\r")
            sys.stderr.flush()
            self._drawn = ""

    def _finish(self) -> None:
        """Show the last round, once, and end its line."""
        if not self._running:
            return
        self._running = False
        if self._live or self._shown != self.trainer.global_step:
            self._show(monotonic())
        if self._drawn:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._drawn = ""
