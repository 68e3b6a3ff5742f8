"""What a campaign is: cases drawn from a seed, each run on its own, and what became of it."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from gfl_lightning.__main__ import main
from gfl_lightning.checks import InputError
from gfl_lightning.command_line import EXIT_BAD_INPUT, EXIT_DIVERGED, EXIT_NOTHING
from gfl_lightning.engine.engine import DivergedError

Kind = Literal["refused", "ran", "traceback", "worse"]
KINDS: tuple[Kind, ...] = ("refused", "ran", "traceback", "worse")
MEMORY = 8 << 30
SECONDS, WAITING = 60.0, 10
BATCH = 25


class EndlessError(BaseException):
    """A case takes longer than any of its size may; nothing may catch it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case, and in words what was wrong with it."""

    kind: Kind
    words: str = ""


@dataclass
class Campaign(ABC):
    """Cases of one kind, by number: the same seed and number are the same case.

    Args:
        seed: of the cases.
        folder: where they may write; a case has a folder of its own in it.
    """

    seed: int
    folder: Path
    name: str = field(default="", init=False)
    kills: ClassVar[bool] = False
    """Whether processes are killed, which may leave a file under a name of their own that nobody reads."""

    def prepare(self) -> None:  # noqa: B027  # not every campaign needs something
        """What all cases need, made once."""

    @abstractmethod
    def run(self, draw: random.Random) -> Outcome:
        """Draw a case and run it in the current folder."""

    def case(self, number: int) -> Outcome:
        """Case number ``number``: its outcome, an exception that escaped being one too."""
        draw = random.Random(f"{type(self).__name__} {self.seed} {number}")
        with tempfile.TemporaryDirectory(dir=self.folder) as own, contextlib.chdir(own), _limited():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcome = self.run(draw)
            except EndlessError:
                return Outcome("worse", f"no end within {SECONDS:.0f} s")
            except (InputError, DivergedError) as refused:
                return (
                    Outcome("refused")
                    if str(refused).endswith((".", "\\n")) or "\n" in str(refused)
                    else Outcome("worse", f"no sentence: {refused}")
                )
            except BaseException as escaped:
                return Outcome("traceback", _where(escaped))
            left = [] if self.kills else [file.name for file in Path().rglob(".*") if file.name[1:2].isdigit()]
            return Outcome("worse", f"half-written {left}") if left else outcome


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """An end to every case: by the time that it computes, and by the clock where it only waits."""

    def end(*_: Any) -> None:
        raise EndlessError

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, SECONDS), (signal.SIGALRM, signal.ITIMER_REAL, WAITING * SECONDS))
    before = [signal.signal(number, end) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if "gfl_lightning" in frame.filename), frames[-1])
    text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return f"{text} at {Path(last.filename).name}:{last.lineno}"


def command_line(*arguments: str) -> Outcome:
    """Run the command line in this process: refused by exit code 2 and a sentence, or run to an end."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["gfl_lightning", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    said = [line for line in err.getvalue().splitlines() if line.startswith("error: ")]
    if (
        code == 0
        and arguments[:1] == ("fit",)
        and "best round" not in out.getvalue()
        and "--print_config" not in arguments
    ):
        return Outcome("worse", "exit code 0 without a summary")
    if code == 0 and "accuracy  nan" in out.getvalue():
        return Outcome("worse", "exit code 0 with a score that is no number")
    if code in (EXIT_BAD_INPUT, EXIT_NOTHING):
        one = len(said) == 1 or code == EXIT_NOTHING
        return Outcome("refused") if one else Outcome("worse", f"{len(said)} sentences: {err.getvalue()[-200:]!r}")
    return Outcome("ran") if code in (0, EXIT_DIVERGED) else Outcome("worse", f"exit code {code}")


@dataclass
class Tally:
    """Counts of a campaign, and a line for each failure."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, seed: int, number: int, outcome: Outcome) -> None:
        """Count an outcome."""
        self.counts[outcome.kind] += 1
        if outcome.kind in ("traceback", "worse"):
            self.failures.append(f"{name} seed {seed} case {number}: {outcome.kind}: {outcome.words}")

    @property
    def cases(self) -> int:
        """How many there were."""
        return sum(self.counts.values())


def conduct(campaign: Campaign, seconds: float, most: int, first: int = 0) -> Tally:
    """Run cases until the time or their number is over, in batches each in a process of its own.

    A process that dies takes its case with it, which is then the worst outcome there is.
    """
    tally, started, number = Tally(), time.monotonic(), first
    campaign.prepare()
    while number < first + most and time.monotonic() - started < seconds:
        end = min(number + BATCH, first + most)
        for outcome in _in_a_process(campaign, number, end, started + seconds):
            tally.add(campaign.name, campaign.seed, number, outcome)
            number += 1
    return tally


def _in_a_process(campaign: Campaign, begin: int, end: int, deadline: float) -> Iterator[Outcome]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with os.fdopen(write, "wb") as stream:
            for number in range(begin, end):
                pickle.dump(campaign.case(number), stream)
                stream.flush()
                if time.monotonic() > deadline:
                    break
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except EOFError:
                break
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        yield Outcome("worse", f"the process died of signal {os.WTERMSIG(status)}")


def clean(folder: Path) -> None:
    """Remove a folder of cases."""
    shutil.rmtree(folder, ignore_errors=True)
