"""What a comparison says, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from gfl_lightning.practice.intervals import Interval
from gfl_lightning.reports.scores import BETTER_IF_HIGHER

NAMES = {"auroc": "AUROC", "rmse": "RMSE", "accuracy": "accuracy", "log_loss": "log loss"}
IN_POINTS = ("auroc", "accuracy")


def verdict(metric: str, gains: Mapping[str, Interval], splits: int) -> str:
    """Whether the graph helps, and whether it is the edges that do.

    ``gains`` are what the graph gains over other methods, positive where it is better, by the methods' keys:
    ``fedavg``, ``shuffled``, and ``isolated`` where clients can train alone.
    """
    over = gains["fedavg"]
    unit, size = NAMES[metric], amount(metric, over)
    if over.sign > 0:
        text = f"The graph {_adds(metric)} {size} {unit} over FedAvg"
        edges = gains["shuffled"].sign > 0
        text += "; shuffled edges lose it" if edges else "; shuffled edges do so too, so it is not the edges that help"
    elif over.sign < 0:
        text = f"The graph loses to FedAvg by {size} {unit}: use FedAvg (model.aggregator: Identity)"
    else:
        text = f"{splits} splits do not tell the graph from FedAvg (it gains {size} {unit})"
    if "isolated" in gains and gains["isolated"].sign < 0:
        text += f"; isolated models are better by {amount(metric, gains['isolated'])}"
    return text + "."


def amount(metric: str, gain: Interval) -> str:
    """A gain with half of its interval's width, the sign being told in words where it is known."""
    factor = 100 if metric in IN_POINTS else 1
    mean = abs(gain.mean) if gain.sign else gain.mean
    digits = 2 if factor == 100 else 4
    return f"{factor * mean:.{digits}f} ± {factor * gain.half_width:.{digits}f}"


def _adds(metric: str) -> str:
    return "adds" if metric in BETTER_IF_HIGHER else "takes off"
