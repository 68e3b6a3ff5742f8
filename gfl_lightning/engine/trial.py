"""A trial of an engine: how low its validation loss gets within a few rounds."""

from __future__ import annotations

from typing import Any

from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import DivergedError, Engine


def trial_loss(engine: Engine[Any], rounds: int) -> float:
    """The lowest validation loss over so many rounds from the start; that before it diverged, if it does.

    >>> from gfl_lightning.federated.federation import Federation
    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> trial_loss(Federation(DNC(num_clients=50, num_features=8).graph), rounds=2) < 1
    True
    """
    state, best = engine.start(), Best()
    try:
        for _ in range(rounds):
            state, report = engine.round(state)
            best = engine.choose(best, state, report)
    except DivergedError:
        pass
    return best.val_loss
