"""What a fit reached: one record, one file, one screen."""

from __future__ import annotations

import json
import math
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.whole_files import whole_file

PACKAGES = ("gfl-lightning", "torch", "pytorch-lightning", "torch-geometric")


def summarise(trainer: Trainer, module: RoundModule, test: Metrics, status: str) -> dict[str, Any]:
    """The record of a fit whose best model scored ``test``; ε and δ are null where nothing is protected."""
    totals = {name: int(value) for name, value in module.totals.items()}
    privacy = module.privacy
    return {
        "status": status,
        "model": type(module).__name__,
        "data": type(getattr(trainer, "datamodule", None)).__name__,
        "test_accuracy": test.accuracy,
        "test_client_accuracy": test.client_accuracy,
        "test_loss": test.loss,
        "val_loss": module.best.val_loss,
        "best_round": module.best.round,
        "rounds": trainer.global_step,
        "updates": trainer.global_step * module.updates_per_round,
        "seconds": round(module.seconds, 3),
        "bytes_up": {"used": totals.get("bytes_up", 0), "printed": totals.get("printed_bytes_up", 0)},
        "bytes_down": {"used": totals.get("bytes_down", 0), "printed": totals.get("printed_bytes_down", 0)},
        "epsilon": None if privacy is None else privacy.epsilon,
        "delta": None if privacy is None else privacy.delta,
        "privacy": None if privacy is None else privacy.as_dict(),
        "seed": module.hparams.get("seed"),
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
    }


def write_summary(folder: Path, summary: dict[str, Any]) -> Path:
    """Write ``summary.json`` whole or not at all."""
    file = folder / "summary.json"
    with whole_file(file) as scratch:
        scratch.write_text(json.dumps(_strict(summary), indent=2, allow_nan=False))
    return file


def _strict(value: Any) -> Any:
    """The value with numbers that JSON does not know as text: inf, nan."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def render(summary: dict[str, Any], folder: Path | None) -> str:
    """The record on one screen; ``folder`` is where its files are, if any were written."""
    rounds = f"{summary['rounds']} ({summary['updates']} updates, {summary['seconds']:.1f} s)"
    lines = {
        "model": f"{summary['model']} on {summary['data']}, seed {summary['seed']}",
        "rounds": rounds if summary["status"] == "finished" else f"{rounds}, {summary['status']}",
        "best round": f"{summary['best_round']} (validation loss {summary['val_loss']:.4f})",
        "test accuracy": f"{100 * summary['test_accuracy']:.2f} % of samples, "
        f"{100 * summary['test_client_accuracy']:.2f} % of clients (loss {summary['test_loss']:.4f})",
        "sent up": _traffic(summary["bytes_up"]),
        "sent down": _traffic(summary["bytes_down"]),
        **_privacy(summary["privacy"]),
        "files": str(folder or "none written"),
    }
    return "\n".join(f"{name:>14}  {value}" for name, value in lines.items())


def _privacy(privacy: dict[str, Any] | None) -> dict[str, str]:
    if privacy is None:
        return {"privacy": "no guarantee (no differential privacy)"}
    noise = ", ".join(f"{name} {value:.4g}" for name, value in privacy["protection"].items() if name != "unit")
    return {"privacy": privacy["sentence"], "": privacy["scope"], "protected by": noise}


def _traffic(count: dict[str, int]) -> str:
    if not count["printed"]:
        return "nothing"
    if count["used"] == count["printed"]:
        return f"{_size(count['used'])}, as the printed protocol"
    return f"{_size(count['used'])}, the printed protocol {_size(count['printed'])}"


def _size(count: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.3g} {units[0]}"
