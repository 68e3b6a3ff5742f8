"""What a fit reached: one record, one file, one screen."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gfl_lightning.engine.best import Best
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.parts import CLASS, OPTIONS
from gfl_lightning.privacy.report import PrivacyReport
from gfl_lightning.whole_files import whole_file

PACKAGES = ("gfl-lightning", "torch", "pytorch-lightning", "torch-geometric")


@dataclass(frozen=True)
class Fit:
    """What is known of a fit once it is over.

    Args:
        status: how it ended: finished, interrupted or diverged.
        model: name of the model's class.
        parts: those in use by their role, as they are or as they were described: ``data`` is the data set, …
        best: the round that was kept.
        test: metrics of its weights on the test samples.
        rounds: rounds made.
        updates_per_round: local updates of a client in each.
        seconds: that the rounds took.
        totals: bytes sent, under the protocol in use and under the printed one, and clients' updates left out.
        privacy: what was spent; ``None`` where nobody asked.
        seed: of the model.
        scores: of its predictions on the test samples, where these are in one place.
        baseline: the same of predicting nothing but the training labels' shares, or their mean.
        mix: how much clients heed each model in the mean, where they weigh several.
    """

    status: str
    model: str
    parts: dict[str, Any]
    best: Best
    test: Metrics
    rounds: int
    updates_per_round: int
    seconds: float
    totals: dict[str, float]
    privacy: PrivacyReport | None
    seed: int | None
    scores: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)
    mix: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The record for a file; ε and δ are null where nobody asked for an account."""
        parts = {role: part_record(part) for role, part in self.parts.items()}
        totals = {name: int(value) for name, value in self.totals.items()}
        privacy = self.privacy
        return {
            "status": self.status,
            "model": self.model,
            "data": type(self.parts["data"]).__name__,
            **{f"test_{name}": value for name, value in (self.scores | vars(self.test)).items()},
            **{f"baseline_{name}": value for name, value in self.baseline.items()},
            **({"mix": self.mix} if self.mix else {}),
            "val_loss": self.best.val_loss,
            "best_round": self.best.round,
            "rounds": self.rounds,
            "updates": self.rounds * self.updates_per_round,
            "seconds": round(self.seconds, 3),
            "bytes_up": {"used": totals.get("bytes_up", 0), "printed": totals.get("printed_bytes_up", 0)},
            "bytes_down": {"used": totals.get("bytes_down", 0), "printed": totals.get("printed_bytes_down", 0)},
            "updates_left_out": totals.get("clients_skipped", 0),
            "epsilon": None if privacy is None else privacy.epsilon,
            "delta": None if privacy is None else privacy.delta,
            "privacy": None if privacy is None else privacy.as_dict(),
            "parts": parts,
            "seed": self.seed,
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        }


def part_record(part: Any) -> Any:
    """A part for a file: its class and options as `parts.describe` writes them; what is no plain value by its kind.

    >>> from gfl_lightning.models.aggregators.sgc import SGC
    >>> part_record(SGC(k=3))
    {'class_path': 'gfl_lightning.models.aggregators.sgc.SGC', 'init_args': {'k': 3}}
    """
    if isinstance(part, dict):
        return {str(name): part_record(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [part_record(value) for value in part]
    if is_dataclass(part) and not isinstance(part, type):
        if not part.__dataclass_params__.repr:  # type: ignore[attr-defined]
            return str(part)
        options = {field.name: part_record(getattr(part, field.name)) for field in fields(part) if field.init}
        return {CLASS: f"{type(part).__module__}.{type(part).__qualname__}", OPTIONS: options}
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    return str(part) if isinstance(part, Path) else type(part).__name__


def write_summary(folder: Path, summary: dict[str, Any]) -> Path:
    """Write ``summary.json`` whole or not at all."""
    file = folder / "summary.json"
    with whole_file(file) as scratch:
        scratch.write_text(json.dumps(strict(summary), indent=2, allow_nan=False))
    return file


def strict(value: Any) -> Any:
    """The value with numbers that JSON does not know as text: inf, nan."""
    if isinstance(value, dict):
        return {name: strict(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
