"""The record of a fit on one screen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from gfl_lightning.parts import CLASS, OPTIONS
from gfl_lightning.reports.numerals import numeral

OF_PRIVACY = ("protection", "guarantee")  # the report on privacy says what of them is in force
USUAL = ("AsTheyAre()", "Mix(fedavg=False, steps=[])")  # parts that go without saying


def render(summary: dict[str, Any], folder: Path | None) -> str:
    """The record that `Fit.record` makes; ``folder`` is where its files are, if any were written."""
    rounds = f"{summary['rounds']} ({summary['updates']} updates, {summary['seconds']:.1f} s)"
    parts = {role: part_text(part) for role, part in summary["parts"].items() if role not in OF_PRIVACY}
    said = (
        USUAL
        if not summary["privacy"] or "records" not in summary["privacy"]["protection"]
        else (parts["records"], USUAL[1])
    )
    parts = {role: text for role, text in parts.items() if text not in said}
    lines = {
        "model": f"{summary['model']} on {summary['data']}, seed {summary['seed']}",
        **parts,
        "rounds": rounds if summary["status"] == "finished" else f"{rounds}, {summary['status']}",
        "best round": f"{summary['best_round']} ({_validated(summary['val_loss'])}){_longer(summary)}",
        **_mixed(summary.get("mix", {})),
        **_tested(summary),
        **_scored(summary),
        **_left_out(summary.get("updates_left_out", 0)),
        "sent up": _traffic(summary["bytes_up"]),
        "sent down": _traffic(summary["bytes_down"]),
        **_privacy(summary["privacy"]),
        "files": str(folder or "none written"),
    }
    return "\n".join(f"{name:>14}  {value}" for name, value in lines.items())


def _validated(loss: float) -> str:
    """The loss of the best round; there is none where nobody tells it."""
    return f"validation loss {loss:.4f}" if math.isfinite(loss) else "no validation loss is known"


def _longer(summary: dict[str, Any]) -> str:
    """What to do where the loss was still falling; a guarantee keeps the last round whatever its loss."""
    last = summary["status"] == "finished" and summary["best_round"] == summary["rounds"]
    return ", the last: train longer" if last and summary["privacy"] is None else ""


def _tested(summary: dict[str, Any]) -> dict[str, str]:
    """How the best model fared on the test samples: accuracy of classes, error of numbers."""
    if math.isnan(summary["test_loss"]):
        return {"test score": "not known, as no test sample gave a number"}
    loss = f"(loss {summary['test_loss']:.4f})"
    if "test_mae" in summary:
        clients = f"a client's own is {numeral(summary['test_client_mae'], 6)} on average"
        return {"test error": f"mean absolute error {numeral(summary['test_mae'], 6)} over samples; {clients} {loss}"}
    samples, clients = (100 * summary[name] for name in ("test_accuracy", "test_client_accuracy"))
    return {
        "test accuracy": f"{samples:.2f} % of samples; a client's own accuracy is {clients:.2f} % on average {loss}"
    }


def _scored(summary: dict[str, Any]) -> dict[str, str]:
    """What else tells how good the best model is, and what one would reach without any."""
    known = "baseline_accuracy" in summary or "baseline_mae" in summary
    if not known or math.isnan(summary["test_loss"]):
        return {}
    if "test_mae" in summary:
        rmse, rank = summary["test_rmse"], summary["test_spearman"]
        mine = f"RMSE {numeral(rmse, 6)}, R² {summary['test_r2']:.4f}, rank correlation {rank:.4f}"
        none = f"mean absolute error {numeral(summary['baseline_mae'], 6)}, RMSE {numeral(summary['baseline_rmse'], 6)}"
        none += ": the training labels' mean"
        return {"also": mine, "baseline": none}
    mine = f"AUROC {summary['test_auroc']:.4f}, log loss {summary['test_log_loss']:.4f}"
    share = f"accuracy {100 * summary['baseline_accuracy']:.2f} %, log loss {summary['baseline_log_loss']:.4f}"
    return {"also": mine, "baseline": f"{share}: the training labels' majority and shares"}


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


def _mixed(heeded: dict[str, float]) -> dict[str, str]:
    """How much clients heed each model, in the mean."""
    shares = ", ".join(f"{title} {100 * share:.0f} %" for title, share in heeded.items())
    return {"heeded": f"{shares}, in the mean over clients"} if heeded else {}


def _left_out(count: int) -> dict[str, str]:
    return {"left out": f"{count} clients' updates that were not finite"} if count else {}


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
