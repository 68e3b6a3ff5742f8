"""Finished cells on disk, one small file each, written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.fingerprint import fingerprint_of
from gfl_lightning.whole_files import whole_file

Record = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """Records by the digest of their parameters; each carries the fingerprint of the code that made it.

    Args:
        folder: where the files are.
    """

    folder: Path

    def load(self, cells: list[Cell]) -> tuple[dict[Cell, Record], int]:
        """The records that hold for these cells, and how many others were found that other code made."""
        found: dict[Cell, Record] = {}
        outdated = 0
        for cell in cells:
            stored = self._read(cell)
            if stored is None:
                continue
            if stored["fingerprint"] == fingerprint_of(cell):
                found[cell] = stored["record"]
            else:
                outdated += 1
        return found, outdated

    def keep(self, cell: Cell, record: Record) -> None:
        """Store the record of a cell, in the place of any older one."""
        content = {"parameters": cell.parameters, "fingerprint": fingerprint_of(cell), "record": record}
        with whole_file(self._file(cell)) as scratch:
            scratch.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")

    def _file(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.json"

    def _read(self, cell: Cell) -> dict[str, Any] | None:
        """The stored content; ``None`` where the file is absent, broken or of other parameters."""
        try:
            stored = json.loads(self._file(cell).read_text(encoding="utf-8"))
            intact = stored["parameters"] == json.loads(json.dumps(cell.parameters)) and "accuracy" in stored["record"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return stored if intact and "fingerprint" in stored else None
