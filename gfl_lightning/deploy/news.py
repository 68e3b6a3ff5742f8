"""One line of JSON for each round, for whoever watches a deployment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gfl_lightning.deploy.driver import RoundNews

FILE = "rounds.jsonl"


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
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(news)) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """The rounds so far."""
        return list(self._lines()) if self.file.is_file() else []

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.file.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # a line that is being written
                return
