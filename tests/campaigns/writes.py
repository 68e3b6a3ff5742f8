"""Checkpoints that are written while a process is killed, a disk is full or files may not grow: whole or as before."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from campaigns.campaign import Campaign, Outcome
from campaigns.faults import disk, may_mount

from gfl_lightning.sealed_files import previous_of, read_sealed, write_sealed

FILE = Path("c/last.ckpt")
LONGEST = 0.04
SIZES = ("4k", "16k", "64k", "256k")
FULL, BROKEN = 5, 70


def in_a_child(work: Callable[[], object], disturb: Callable[[int], object] = lambda child: None) -> int:
    """Do something in a forked process, disturbed from outside; its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            work()
            code = 0
        except OSError:
            code = FULL
        finally:
            os._exit(code)
    disturb(child)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(number: int, entries: int) -> dict[str, Any]:
    """Something to write, that can be told from what was written before."""
    return {"number": number, "weights": torch.full((entries,), float(number))}


@dataclass
class Writes(Campaign):
    """What is there is whole at any time, and never older than what was finished; nothing else is left in the end."""

    kills: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.mounts = may_mount(self.folder / "may mount")
        self.name = "checkpoint writes, killed or without room"

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        entries, way = draw.choice([10, 1000, 30_000]), draw.choice(["kill", "kill", "limit", "disk"])
        if way == "disk" and self.mounts:
            with disk(Path("c").absolute(), draw.choice(SIZES)):
                return self._without_room(entries, lambda: None)
        if way == "kill":
            return self._killed(entries, draw.random() * LONGEST)
        limit = draw.choice([0, 1000, 4000, 100_000])
        return self._without_room(entries, lambda: _grow_to(limit))

    def _killed(self, entries: int, after: float) -> Outcome:
        in_a_child(lambda: write_sealed(content(0, entries), FILE))  # each process clears a folder once
        in_a_child(
            lambda: [write_sealed(content(number, entries), FILE) for number in range(1, 10_000)],
            lambda child: (time.sleep(after), os.kill(child, signal.SIGKILL)),
        )
        found = _whole(FILE, entries)
        before = _whole(previous_of(FILE), entries) if previous_of(FILE).exists() else found
        if not before <= found <= before + 1:
            return Outcome("worse", f"number {found} beside {before}")
        in_a_child(lambda: write_sealed(content(found + 1, entries), FILE))
        return _tidy(_whole(FILE, entries) == found + 1)

    def _without_room(self, entries: int, before: Callable[[], object]) -> Outcome:
        codes = [in_a_child(lambda: write_sealed(content(0, entries), FILE))]
        if codes == [0]:
            codes += [in_a_child(lambda n=n: (before(), write_sealed(content(n, entries), FILE))) for n in (1, 2)]
        if set(codes) - {0, FULL}:
            return Outcome("traceback", f"exit codes {codes}")
        made = [number for number, code in enumerate(codes) if code == 0]
        whole = not made if not FILE.exists() else made[-1:] == [_whole(FILE, entries)]
        return _tidy(whole) if len(made) == 3 else Outcome("refused") if _tidy(whole).kind == "ran" else _tidy(whole)


def _grow_to(limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def _whole(file: Path, entries: int) -> int:
    """The number in a file, which must be a whole one."""
    held = read_sealed(file, file.name)
    assert held["weights"].tolist() == [held["number"]] * entries
    return int(held["number"])


def _tidy(as_it_should_be: bool) -> Outcome:
    left = [file.name for file in FILE.parent.iterdir() if file not in (FILE, previous_of(FILE))]
    if left or not as_it_should_be:
        return Outcome("worse", f"half-written {left}" if left else "another file than the last one that was written")
    return Outcome("ran")
