"""The record of a fit on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gfl_lightning.parts import CLASS, OPTIONS

OF_PRIVACY = ("protection", "guarantee")  # the report on privacy says what of them is in force


def render(summary: dict[str, Any], folder: Path | None) -> str:
    """The record that `Fit.record` makes; ``folder`` is where its files are, if any were written."""
    rounds = f"{summary['rounds']} ({summary['updates']} updates, {summary['seconds']:.1f} s)"
    parts = {role: part_text(part) for role, part in summary["parts"].items() if role not in OF_PRIVACY}
    lines = {
        "model": f"{summary['model']} on {summary['data']}, seed {summary['seed']}",
        **parts,
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


def part_text(part: Any) -> str:
    """A part in words: its class and the options that it has.

    >>> part_text({"class_path": "mine.Cosine", "init_args": {"k": 3, "bias": None, "of": [1, 2.5]}})
    'Cosine(k=3, of=[1, 2.5])'
    """
    if isinstance(part, dict) and CLASS in part:
        return f"{str(part[CLASS]).rpartition('.')[2]}({_listed(part.get(OPTIONS, {}))})"
    if isinstance(part, list):
        return f"[{', '.join(part_text(one) for one in part)}]"
    return f"{part:.6g}" if isinstance(part, float) and not part.is_integer() else str(part)


def _listed(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={part_text(value)}" for name, value in options.items() if value is not None)


def _privacy(privacy: dict[str, Any] | None) -> dict[str, str]:
    if privacy is None:
        return {"privacy": "no guarantee (no differential privacy)"}
    mechanisms = (
        f"{kind} {part['mechanism']}({_listed({name: value for name, value in part.items() if name != 'mechanism'})})"
        for kind, part in privacy["protection"].items()
    )
    protected = ", ".join(mechanisms) or "nothing"
    return {"privacy": privacy["sentence"], "": privacy["scope"], "protected by": protected}


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
