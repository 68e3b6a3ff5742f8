"""Peak memory of a piece of work, above what its process held before."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def in_fresh_process(work: Callable[..., Result], *arguments: object) -> Result:
    """Run in a process of its own, so that earlier work leaves no memory behind."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def peak_bytes(run: Callable[[], object]) -> int:
    """Peak resident memory during ``run`` above that at its start (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
