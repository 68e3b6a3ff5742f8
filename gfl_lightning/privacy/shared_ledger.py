"""What all runs on the same data have spent together: a small file beside the data.

Every line is one entry, as JSON: a run, and what it may spend at most. It is written before the run's first round, so
that whatever happens then, a crash included, is written down already. Entries of several runs add up, ε and δ each
(basic composition, which holds for runs that are chosen in the light of earlier ones). Two processes take turns.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from gfl_lightning.checks import InputError, require


@dataclass(frozen=True)
class Entry:
    """What one run may spend.

    Args:
        run: its name; a later entry of the same run stands for the earlier one.
        epsilon: ε.
        delta: δ.
        unit: what ε is about, with the relation of neighbours.
        what: in words.
        written: when.
    """

    run: str
    epsilon: float
    delta: float
    unit: str
    what: str = ""
    written: str = ""


@dataclass(frozen=True)
class Total:
    """ε and δ of so many runs together."""

    epsilon: float
    delta: float
    runs: int


@dataclass(frozen=True)
class SharedLedger:
    """The file and what may be done with it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = SharedLedger(Path(folder) / "ledger.jsonl")
    ...     for run in ("monday", "tuesday", "monday"):
    ...         ledger.write(Entry(run, 1.0, 1e-5, "client"), most=2.5)
    ...     ledger.total()
    Total(epsilon=2.0, delta=2e-05, runs=2)

    Args:
        file: where it is; made when first written to.
    """

    file: Path

    def entries(self) -> dict[str, Entry]:
        """The entry of each run; a file that is no ledger is refused."""
        if not self.file.exists():
            return {}
        with self._locked("rb") as stream:
            return self._read(stream)

    def total(self, without: str | None = None) -> Total:
        """What all runs may spend, or all but one."""
        return _sum(entry for run, entry in self.entries().items() if run != without)

    def left(self, most: float, run: str) -> float:
        """What a budget of ``most`` leaves for a run."""
        return most - self.total(without=run).epsilon

    def write(self, entry: Entry, most: float | None = None) -> None:
        """Write an entry down, for good, unless the runs would then spend more than ``most`` together.

        A run's entry never becomes smaller.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self._locked("a+b") as stream:
            stream.seek(0)
            found = self._read(stream)
            for other in found.values():
                same = other.unit == entry.unit
                require(same, "ledger", f"be about {other.unit!r} as its entries are, for they add up", entry.unit)
            before = found.get(entry.run)
            if before is not None:
                if before.epsilon >= entry.epsilon and before.delta >= entry.delta:
                    return
                most_of_both = {name: max(getattr(before, name), getattr(entry, name)) for name in ("epsilon", "delta")}
                entry = replace(entry, **most_of_both)
            found[entry.run] = entry
            together = _sum(iter(found.values())).epsilon
            rule = f"leave room for this run on {self.file}, with which all of its runs spend {together:.6g}"
            require(most is None or together <= most * (1 + 1e-9), "max_epsilon", rule, most)
            first = stream.seek(0, os.SEEK_END) == 0
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            line = json.dumps(asdict(entry) | {"epsilon": str(entry.epsilon), "written": now}, ensure_ascii=False)
            stream.write(self._torn(stream) + line.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        if first:
            self._keep_the_name()

    def _keep_the_name(self) -> None:
        """Have the folder on the disk, as a file whose name is lost is lost with it."""
        folder = os.open(self.file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _locked(self, mode: str) -> Iterator[IO[bytes]]:
        with open(self.file, mode) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX if "a" in mode else fcntl.LOCK_SH)
            yield stream

    def _read(self, stream: IO[bytes]) -> dict[str, Entry]:
        """The entries; a last line without end was never written whole, and what it announces never began."""
        found: dict[str, Entry] = {}
        for number, line in enumerate(stream.read().split(b"\n")[:-1], 1):
            if line.endswith(b"#"):
                continue
            try:
                values = json.loads(line)
                require(set(values) == {field.name for field in fields(Entry)}, "entry", "be whole", values)
                entry = Entry(**values | {"epsilon": float(values["epsilon"]), "delta": float(values["delta"])})
            except (ValueError, TypeError) as broken:
                raise InputError(
                    f"ledger must hold an entry in each line, got {str(self.file)!r} whose line {number} is none."
                ) from broken
            found[entry.run] = entry
        return found

    @staticmethod
    def _torn(stream: IO[bytes]) -> bytes:
        """What ends a line that a crash has left without end: a mark that it is none."""
        if stream.tell() == 0:
            return b""
        stream.seek(-1, os.SEEK_END)
        return b"" if stream.read(1) == b"\n" else b"#\n"


def total_of(file: str | None) -> Total | None:
    """What all runs on a ledger may spend; ``None`` where no file is named."""
    return None if file is None else SharedLedger(Path(file)).total()


def _sum(entries: Iterator[Entry]) -> Total:
    listed = list(entries)
    return Total(sum(entry.epsilon for entry in listed), sum(entry.delta for entry in listed), len(listed))
