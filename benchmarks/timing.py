"""Two programs timed in turns, so that a noisy machine disturbs both."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def in_turns(
    first: Callable[[], object], second: Callable[[], object], repeats: int, firsts_per_turn: int = 1, warm_up: int = 3
) -> tuple[float, float]:
    """Median seconds of each, after warming both up; the first may run several times for each run of the second."""
    for _ in range(warm_up):
        first()
    second()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        times[0].extend(seconds(first) for _ in range(firsts_per_turn))
        times[1].append(seconds(second))
    return median(times[0]), median(times[1])
