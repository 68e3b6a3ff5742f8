"""Cells over processes: however a run ends, no process of it lives on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import pytest

from gfl_lightning.checks import InputError
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.pool import run_cells
from gfl_lightning.studies.store import Record

MANY = [Cell(Experiment.read("paper/sc_synthetic"), repetition) for repetition in range(200)]


def workers(before: set[BaseProcess]) -> list[BaseProcess]:
    return [child for child in multiprocessing.active_children() if child not in before]


def ended_by(at_first: Callable[[list[BaseProcess]], None], error: type[BaseException]) -> tuple[int, str]:
    """How many cells were handed over and what was raised, where something happens while the first is kept."""
    before, kept = set(multiprocessing.active_children()), list[Cell]()
    started: list[BaseProcess] = []

    def keep(cell: Cell, record: Record) -> None:
        assert record["accuracy"] > 0.5
        kept.append(cell)
        if not started:
            started.extend(workers(before))
            at_first(started)

    with pytest.raises(error) as raised:
        run_cells(MANY, 2, keep)
    assert len(started) == 2
    deadline = time.monotonic() + 60
    while any(lives(worker) for worker in started) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(lives(worker) for worker in started)
    return len(kept), str(raised.value)


def lives(worker: BaseProcess) -> bool:
    """Asked of the system: whoever awaits a child first takes its end away from all others."""
    assert worker.pid is not None
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_while_a_record_is_kept_ends_the_workers() -> None:
    def interrupted(_: list[BaseProcess]) -> None:
        raise KeyboardInterrupt

    assert ended_by(interrupted, KeyboardInterrupt)[0] == 1


def test_a_worker_that_is_killed_ends_the_run_with_a_sentence() -> None:
    def kill(started: list[BaseProcess]) -> None:
        pid = started[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    kept, sentence = ended_by(kill, InputError)
    assert kept < len(MANY)
    assert "--jobs must leave each process memory enough, but one of 2 was ended from outside" in sentence
