"""Where gradient descent stops: a training loss that is no number."""

from __future__ import annotations

import math

from gfl_lightning.engine.engine import DivergedError, EngineState
from gfl_lightning.engine.evaluation import Metrics


def require_finite(metrics: dict[str, Metrics], lr: float, before: EngineState) -> None:
    """Stop where a round has made the training loss infinite or no number; ``before`` is the state it started from."""
    loss = metrics["train"].loss
    if not math.isfinite(loss):
        text = f"lr must be small enough for a finite training loss, got {lr}: the loss became {loss}."
        raise DivergedError(text, before)
