"""What a comparison says, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gfl_lightning.baselines.pooled import POOLED
from gfl_lightning.practice.intervals import Interval
from gfl_lightning.reports.scores import BETTER_IF_HIGHER

NAMES = {"auroc": "AUROC", "rmse": "RMSE", "accuracy": "accuracy", "log_loss": "log loss"}
NAMES |= {"mae": "mean absolute error", "r2": "R²", "spearman": "rank correlation"}
IN_POINTS = ("auroc", "accuracy")


def verdict(
    metric: str, gains: Mapping[str, Interval], shuffled: Interval, splits: int, split_is_given: bool = False
) -> str:
    """Whether the graph helps, whether it is the edges that do, and what is surely better.

    ``gains`` are what the graph gains over other methods, positive where it is better, by the methods' keys:
    ``fedavg``, ``shuffled``, ``isolated`` where clients can train alone, those of all rows in one place. ``shuffled``
    is what the same on shuffled edges gains over FedAvg. Intervals are over ``splits``, or over the clients of one that
    is given.
    """
    over = gains["fedavg"]
    unit, size = NAMES[metric], amount(metric, over)
    judges = "these clients" if split_is_given else f"{splits} splits"
    if over.sign > 0:
        text = f"The graph {_adds(metric)} {size} {unit} over FedAvg"
        if gains["shuffled"].sign > 0:
            text += "; shuffled edges lose it"
        elif shuffled.sign > 0:
            text += "; shuffled edges do so too, so that it need not be these edges that help"
        else:
            text += f"; {judges} do not tell whether shuffled edges lose it"
    elif over.sign < 0:
        text = f"The graph loses to FedAvg by {size} {unit}: use FedAvg (model.aggregator: Identity)"
    elif splits == 1 and not split_is_given:
        text = f"The graph gains {size} {unit} over FedAvg on one split, which has no interval: this may be chance"
    else:
        text = f"{judges[:1].upper()}{judges[1:]} do not tell the graph from FedAvg (it gains {size} {unit})"
    if "isolated" in gains and gains["isolated"].sign < 0:
        text += f"; isolated models are better by {amount(metric, gains['isolated'])}"
    pooled = {one: gains[one.key] for one in POOLED if one.key in gains and gains[one.key].sign < 0}
    if pooled:
        best = min(pooled, key=lambda one: pooled[one].mean)
        text += f"; better by {amount(metric, pooled[best])}, with all rows in one place: {best.title}"
    return text + "."


def amount(metric: str, gain: Interval) -> str:
    """A gain with half of its interval's width, if it has one, the sign being told in words where it is known."""
    factor = 100 if metric in IN_POINTS else 1
    mean = abs(gain.mean) if gain.sign else gain.mean
    digits = 2 if factor == 100 else 4
    width = f" ± {factor * gain.half_width:.{digits}f}" if math.isfinite(gain.half_width) else ""
    return f"{factor * mean:.{digits}f}{width}"


def _adds(metric: str) -> str:
    return "adds" if metric in BETTER_IF_HIGHER else "takes off"
