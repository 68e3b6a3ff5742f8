"""A torch scheduler in words, to tell whether a resumed run has the one that its checkpoint was made with."""

from __future__ import annotations

import inspect
from typing import Any

MOVING = ("optimizer", "last_epoch", "verbose")


def scheduler_in_words(scheduler: Any) -> dict[str, Any]:
    """The class of a scheduler and those of its options that are plain values; nothing for no scheduler.

    >>> import torch
    >>> carrier = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> scheduler_in_words(torch.optim.lr_scheduler.StepLR(carrier, step_size=5))
    {'class': 'StepLR', 'step_size': 5, 'gamma': 0.1}
    """
    if scheduler is None:
        return {}
    own = vars(scheduler)
    options = {name: own[name] for name in inspect.signature(type(scheduler)).parameters if name in own}
    plain = {name: value for name, value in options.items() if type(value) in (bool, int, float, str)}
    return {"class": type(scheduler).__name__} | {name: v for name, v in plain.items() if name not in MOVING}
