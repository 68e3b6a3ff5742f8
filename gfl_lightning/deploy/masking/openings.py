"""Which sums a site has helped to open: a sum is not opened again over other sites."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.ticket import Ticket


@dataclass(eq=False)
class Openings:
    """Remembers over which sites each sum was opened, in a file where one is given, written before the site answers.

    Two sums of the same values over different sites differ by one site's value. So a sum that the server reads is
    opened over one set of sites alone, also after a restart. A sum all of whose parts are sealed by their receivers may
    be opened again: the server reads neither.

    >>> openings = Openings()
    >>> openings.record(Ticket("run", 0, "train"), ["a", "b", "c"], sealed=False)
    >>> openings.record(Ticket("run", 0, "train"), ["a", "b"], sealed=False)
    Traceback (most recent call last):
    ...
    gfl_lightning.checks.InputError: train of round 0 must be opened over a, b, c as before, since the difference of \
two sums would be what one site sent, got a, b.

    Args:
        file: one line for each opening; ``None`` keeps them in memory.
    """

    file: Path | None = None
    _opened: dict[Ticket, list[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError):  # empty, or never finished: then the site has not answered either
                    entry = json.loads(line)
                    self._opened[Ticket(*entry["sum"])] = entry["sites"]

    def record(self, ticket: Ticket, survivors: Sequence[str], sealed: bool) -> None:
        """Write an opening down; refused where the server would read a second sum of the same values."""
        sites = sorted(set(survivors))
        before = self._opened.get(ticket)
        if sealed or before == sites:
            return
        if before is not None:
            raise InputError(
                f"{ticket} must be opened over {', '.join(before)} as before, since the difference of two sums would "
                f"be what one site sent, got {', '.join(sites)}."
            )
        if self.file is not None:
            self._append({"sum": [ticket.run, ticket.round, ticket.phase], "sites": sites})
        self._opened[ticket] = sites

    def _append(self, entry: dict[str, object]) -> None:
        assert self.file is not None
        self.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as stream:
            stream.write(f"\n{json.dumps(entry)}\n")  # after a line that was never finished, a new one
            stream.flush()
            os.fsync(descriptor)
