"""Cells over processes: one thread each, longest first, one progress bar, and an end that leaves nothing running."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager

import torch
from tqdm import tqdm

from gfl_lightning.checks import InputError
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.cost import cost
from gfl_lightning.studies.store import Record
from gfl_lightning.studies.training import run_cell

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Keep = Callable[[Cell, Record], None]


def run_cells(cells: list[Cell], jobs: int, keep: Keep) -> None:
    """Run cells and hand each record to ``keep`` as soon as it is there.

    ``jobs`` of 1 stays in this process. A KeyboardInterrupt, wherever it falls, ends the workers and is passed on.
    """
    order = sorted(cells, key=cost, reverse=True)
    run = _in_this_process(order) if jobs == 1 or len(order) < 2 else _in_processes(order, min(jobs, len(order)))
    with _progress(order) as advance, closing(run) as results:
        for cell, record in results:
            keep(cell, record)
            advance(cell)


def _in_this_process(cells: list[Cell]) -> Generator[tuple[Cell, Record], None, None]:
    torch.set_num_threads(1)
    for cell in cells:
        yield cell, run_cell(cell)


def _in_processes(cells: list[Cell], jobs: int) -> Generator[tuple[Cell, Record], None, None]:
    """Results in the order in which they come; closing it ends the workers."""
    with _deaf_to_interrupts(), _one_thread_each():
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker)
        running: dict[Future[Record], Cell] = {pool.submit(run_cell, cell): cell for cell in cells}
        workers = [child for child in multiprocessing.active_children() if child not in before]
    try:
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise InputError(
            f"--jobs must leave each process memory enough, but one of {jobs} was ended from outside; what is finished "
            "is kept, and the same command goes on from there."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def _start_worker() -> None:
    """One thread, no ear for Ctrl-C (the parent decides), and no life after the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """No Ctrl-C falls between the start of processes and the care for their end; they never hear it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Environment in which a new process's libraries use one thread from the start."""
    usual = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in usual.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _progress(cells: list[Cell]) -> Iterator[Callable[[Cell], None]]:
    """A bar that advances by what a cell is expected to cost, so that the time left is an honest estimate."""
    layout = "{desc} {percentage:3.0f} % |{bar}| {elapsed} passed, {remaining} left{postfix}"
    total, interval = sum(map(cost, cells)), 0.5 if sys.stderr.isatty() else 30.0
    with tqdm(
        total=total, desc=f"{len(cells)} cells", bar_format=layout, file=sys.stderr, smoothing=0.1, mininterval=interval
    ) as bar:
        left = len(cells)

        def advance(cell: Cell) -> None:
            nonlocal left
            left -= 1
            bar.set_postfix_str(f"{left} cells to go", refresh=False)
            bar.update(cost(cell))

        yield advance
