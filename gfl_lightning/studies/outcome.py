"""What a run of studies found: its rows, the records of their cells, and all of it as strict JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from gfl_lightning.studies.cell import Cell, Row
from gfl_lightning.studies.fingerprint import fingerprint_of, versions
from gfl_lightning.studies.published import CONNECTIVITY_LAMBDA_MAX, NOISE, SUMMARY, Published
from gfl_lightning.studies.statistics import Estimate, estimate
from gfl_lightning.studies.store import Record


@dataclass(frozen=True)
class Outcome:
    """The studies of a run with their records.

    Args:
        studies: rows by study, those left out excepted.
        records: of every cell of these rows.
        command: what was called, without what does not matter to the numbers.
        quick: whether sizes were cut down, so that no number means anything.
        notes: sentences on what was left out.
    """

    studies: dict[str, list[Row]]
    records: dict[Cell, Record]
    command: str
    quick: bool
    notes: tuple[str, ...] = ()

    def of(self, row: Row) -> list[Record]:
        """The records of a row."""
        return [self.records[cell] for cell in row.cells]

    def values(self, row: Row, name: str) -> list[float]:
        """A quantity over the repetitions, of the record or of what was measured on the way; diverged ones left out."""
        found = [record.get(name, record.get("measured", {}).get(name)) for record in self.of(row)]
        return [value for value in found if value is not None]

    def estimate(self, row: Row, name: str) -> Estimate | None:
        """Mean and interval of a quantity; ``None`` where there is no value."""
        values = self.values(row, name)
        return estimate(values) if values else None

    def accuracy(self, row: Row, name: str = "accuracy") -> Estimate | None:
        """Test accuracy in per cent."""
        values = [100 * value for value in self.values(row, name)]
        return estimate(values) if values else None

    def agreement(self, study: str, row: Row) -> str:
        """Whether a row agrees with its printed counterpart; a quick run is compared with nothing."""
        return "—" if self.quick else agreement(self.accuracy(row), published(study, row))

    @property
    def summary(self) -> list[Row]:
        """The rows that have a published counterpart in the paper's table, each once."""
        rows = [row for name in ("summary", "dnc", "snc", "sc") for row in self.studies.get(name, [])]
        return list({(row.label, row.column): row for row in rows if (row.label, row.column) in SUMMARY}.values())


def published(study: str, row: Row) -> Published | None:
    """The printed counterpart of a row."""
    if study == "dp":
        return NOISE.get((row.label, row.column))
    return SUMMARY.get((row.label, row.column)) if study in ("summary", "dnc", "snc", "sc") else None


def agreement(found: Estimate | None, printed: Published | None) -> str:
    """Whether the intervals overlap: ``yes``, ``no``, ``misprint`` where the printed cell is one, or a dash."""
    if found is None or printed is None:
        return "—"
    if printed.erratum is not None:
        return "misprint"
    return "yes" if found.overlaps(printed.mean, printed.half_width) else "no"


def as_json(outcome: Outcome) -> str:
    """Every repetition with its parameters and seconds, the estimates of every row, versions: strict JSON."""
    studies = {study: [_row(outcome, study, row) for row in rows] for study, rows in outcome.studies.items()}
    cells = {
        cell.key: {"parameters": cell.parameters, "fingerprint": fingerprint_of(cell), **record}
        for cell, record in outcome.records.items()
    }
    content = {
        "command": outcome.command,
        "quick": outcome.quick,
        "notes": list(outcome.notes),
        "versions": versions(),
        "seconds": round(sum(record["seconds"] for record in outcome.records.values()), 1),
        "published_lambda_max": CONNECTIVITY_LAMBDA_MAX,
        "studies": studies,
        "cells": cells,
    }
    return json.dumps(content, indent=1, allow_nan=False)


def _row(outcome: Outcome, study: str, row: Row) -> dict[str, Any]:
    found, printed = outcome.accuracy(row), published(study, row)
    return {
        "label": row.label,
        "column": row.column,
        "accuracy": None if found is None else _finite(asdict(found)),
        "published": None if printed is None else printed._asdict(),
        "agrees": outcome.agreement(study, row),
        "cells": [cell.key for cell in row.cells],
    }


def _finite(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
