"""What the server tells of a round, and one line of JSON for each, for whoever watches a deployment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gfl_lightning.engine.evaluation import ClassMetrics

FILE = "rounds.jsonl"


@dataclass(frozen=True)
class RoundNews:
    """What the server knows after a round.

    Args:
        round: rounds made.
        rounds: rounds to be made.
        metrics: of W̄ before the round, by split; nothing where sites do not report any.
        trained: models in the average.
        skipped: models left out of it as they were not finite.
        missing: why each site was absent that was, from this round's training or the exchange after it.
        untrained: the sites without models in the average.
        ages: of the oldest upload that the round used of each site, in rounds; −1 where there was none.
        seconds: that the round took, until it was on the server's disk.
    """

    round: int
    rounds: int
    metrics: Mapping[str, ClassMetrics]
    trained: int
    skipped: int
    missing: Mapping[str, str]
    untrained: tuple[str, ...]
    ages: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class NewsFile:
    """Rounds as they are made; a round that is made again after a restart is there again.

    Args:
        folder: where the file is.
    """

    folder: Path

    @property
    def file(self) -> Path:
        """The file."""
        return self.folder / FILE

    def add(self, news: RoundNews) -> None:
        """Add a round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as stream:
            stream.write(f"\n{json.dumps(asdict(news))}\n")  # after a line that was never finished, a new one

    def read(self) -> list[dict[str, Any]]:
        """The rounds so far."""
        return list(self._lines()) if self.file.is_file() else []

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # empty, being written, or never finished
                record = json.loads(line)
                if isinstance(record, dict) and {field.name for field in fields(RoundNews)} <= set(record):
                    yield record
