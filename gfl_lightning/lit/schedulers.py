"""A torch scheduler in words, and whether the rates that it sets are a function of time alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import lr_scheduler

MOVING = ("optimizer", "last_epoch", "verbose")
TIMED = (
    *(lr_scheduler.StepLR, lr_scheduler.MultiStepLR, lr_scheduler.ConstantLR, lr_scheduler.LinearLR),
    *(lr_scheduler.ExponentialLR, lr_scheduler.PolynomialLR, lr_scheduler.CosineAnnealingLR),
    *(lr_scheduler.CosineAnnealingWarmRestarts, lr_scheduler.OneCycleLR),
)
"""Schedulers of torch's that look at nothing but the number of steps."""
SEVERAL = (lr_scheduler.SequentialLR, lr_scheduler.ChainedScheduler)


def scheduler_in_words(scheduler: Any) -> dict[str, Any]:
    """The class of a scheduler and those of its options that are plain values; nothing for no scheduler.

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


def is_timed(scheduler: Any) -> bool:
    """Whether a scheduler is known to look at the number of steps alone; a function of one's own may look anywhere.

    >>> carrier = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> is_timed(lr_scheduler.StepLR(carrier, 5)), is_timed(lr_scheduler.LambdaLR(carrier, lambda t: 0.9**t))
    (True, False)
    """
    if type(scheduler) in SEVERAL:
        return all(is_timed(one) for one in scheduler._schedulers)
    return type(scheduler) in TIMED


def is_followed(scheduler: Any) -> bool:
    """Whether the rates of a scheduler can be found beside a fit: of time alone, or of a loss that is told."""
    return is_timed(scheduler) or type(scheduler) is lr_scheduler.ReduceLROnPlateau


@dataclass
class Timetable:
    """The rates of a scheduler of time alone, or of a loss that it is told, found beside a fit.

    So nothing in the fit can have moved them.

    >>> table = Timetable.of(lambda carrier: lr_scheduler.StepLR(carrier, 2, gamma=0.5), lr=1.0, steps=1)
    >>> [table.next() for _ in range(3)]
    [1.0, 0.5, 0.5]

    Args:
        scheduler: a twin of the fit's.
        lr: the rate without one.
        moves: whether the next rate takes a step.
    """

    scheduler: Any
    lr: float
    moves: bool = False

    @classmethod
    def of(
        cls, make: Callable[[torch.optim.Optimizer], Any] | None, lr: float, steps: int, live: Any = None
    ) -> Timetable:
        """The table after so many steps; one rate throughout where no scheduler keeps to a timetable.

        A scheduler that is told a loss begins where the ``live`` one is.
        """
        twin = None if make is None else make(torch.optim.SGD([torch.zeros(1)], lr=lr))
        made = cls(twin if is_followed(twin) else None, lr)
        if type(twin) is lr_scheduler.ReduceLROnPlateau and live is not None:
            twin.load_state_dict(live.state_dict())
            for group, now in zip(twin.optimizer.param_groups, live.optimizer.param_groups, strict=True):
                group["lr"] = now["lr"]
        for _ in range(steps):
            made.next()
        return made

    def next(self) -> float:
        """The rate of the next round."""
        if self.scheduler is None:
            return self.lr
        if self.moves and is_timed(self.scheduler):
            self.scheduler.optimizer.step()
            self.scheduler.step()
        self.moves = True
        return float(self.scheduler.optimizer.param_groups[0]["lr"])

    def told(self, loss: float) -> None:
        """Let a scheduler that watches the loss know of one more."""
        if type(self.scheduler) is lr_scheduler.ReduceLROnPlateau:
            self.scheduler.step(loss)
