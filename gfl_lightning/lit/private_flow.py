"""What steers a fit under a guarantee: metrics of the clients' data may not, unless they are private themselves."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping, ModelCheckpoint, Timer, WeightAveraging
from pytorch_lightning.trainer.states import TrainerFn, TrainerStatus
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gfl_lightning.checks import InputError, require
from gfl_lightning.lit.patience import Patience
from gfl_lightning.lit.schedulers import is_followed
from gfl_lightning.privacy.guarantee import Selection

PRIVATE = "private_val_loss"
"""The validation loss under noise, as callbacks and schedulers know it."""
OTHER_RATE = "the rate (set by something else than its scheduler, which may have seen the data)"
OTHER_STOP = "when the fit stopped (a callback that nothing is known of asked for it)"
OTHER_WEIGHTS = "the weights (which no round has left)"
INTERRUPTED = "when the fit was interrupted"
SHORTENED = "the number of rounds (fewer than the run was planned for before)"


def steered_by_data(trainer: Any, validates: bool, scheduler: Any) -> bool:
    """Whether a callback stops the fit by the private validation loss; what acts on an exact metric is refused.

    Args:
        trainer: whose callbacks.
        validates: whether there is a private validation loss.
        scheduler: of the rate, if there is one.
    """
    callbacks = getattr(trainer, "callbacks", [])
    patience = [one for one in callbacks if isinstance(one, Patience)]
    require(not patience, "callbacks", "hold no Patience under a guarantee, as it acts on exact losses", patience)
    stopping = [one for one in callbacks if isinstance(one, EarlyStopping)]
    for callback in stopping:
        own = type(callback) is not EarlyStopping
        if own:
            raise InputError(
                "callbacks must hold no EarlyStopping of one's own under a guarantee, as what it acts on is not known, "
                f"got {type(callback).__name__}."
            )
        if callback.monitor != PRIVATE or not validates:
            raise InputError(
                f"callbacks must hold no EarlyStopping on an exact metric under a guarantee, as when a fit stops would "
                f"tell about its data (monitor {PRIVATE}, with noise on protection.validation, is counted), "
                f"got {callback.monitor!r}."
            )
    if isinstance(scheduler, ReduceLROnPlateau) and not validates:
        raise InputError(
            "lr_scheduler must not watch an exact metric under a guarantee, as the rate would tell about the data "
            "(with noise on protection.validation it watches a private one), got ReduceLROnPlateau."
        )
    return bool(stopping)


def refuse_averaging(trainer: Any) -> None:
    """Refuse callbacks that would share weights of no round, under noise that was used."""
    averaging = [type(one).__name__ for one in getattr(trainer, "callbacks", []) if isinstance(one, WeightAveraging)]
    rule = "hold no WeightAveraging where uploads are protected, as averaged weights would be shared under used noise"
    require(not averaging, "callbacks", rule, averaging)


def unknown_rate(scheduler: Any) -> tuple[str, ...]:
    """What is to be said of a rate whose scheduler may look at anything, such as a function of one's own."""
    known = scheduler is None or is_followed(scheduler)
    return () if known else (f"the rate ({type(scheduler).__name__} is not known to look at time alone)",)


def averages(trainer: Any) -> bool:
    """Whether a callback averages weights over rounds, which then are those of no round."""
    return any(isinstance(one, WeightAveraging) for one in getattr(trainer, "callbacks", []))


def is_fitting(trainer: Any) -> bool:
    """Whether a trainer is in the middle of a fit."""
    return trainer is not None and (trainer.state.fn, trainer.state.status) == (
        TrainerFn.FITTING,
        TrainerStatus.RUNNING,
    )


def time_is_over(trainer: Any) -> bool:
    """Whether a fit has used up its time."""
    left = [one.time_remaining() for one in trainer.callbacks if type(one) is Timer]
    return any(one is not None and one <= 0 for one in left)


class Stopping:
    """What `EarlyStopping` on the private validation loss decides, found beside a fit from that loss alone.

    >>> Stopping().is_over
    False

    Args:
        twins: of the callbacks, as they were when the rounds began.
    """

    def __init__(self, twins: Sequence[EarlyStopping] = ()) -> None:
        self._twins = twins
        self.is_over = any(one.wait_count >= one.patience for one in twins)

    @classmethod
    def of(cls, trainer: Any) -> Stopping:
        """That of a trainer's callbacks."""
        callbacks = getattr(trainer, "callbacks", [])
        return cls([copy(one) for one in callbacks if type(one) is EarlyStopping and one.monitor == PRIVATE])

    def told(self, loss: float) -> None:
        """Take note of one more private loss."""
        stops = [one._evaluate_stopping_criteria(torch.tensor(loss, dtype=torch.float64))[0] for one in self._twins]
        self.is_over |= any(stops)


def rate_of_others(trainer: Any, expected: float) -> bool:
    """Whether the rate is another than a timetable has it, or than that of a scheduler that keeps to none."""
    free = [one.scheduler for one in trainer.lr_scheduler_configs if not is_followed(one.scheduler)]
    expected = free[0].get_last_lr()[0] if free else expected
    return any(carrier.param_groups[0]["lr"] != expected for carrier in trainer.optimizers)


def outside_the_guarantee(trainer: Any, selection: Selection) -> tuple[str, ...]:
    """What a user has asked for that looks at exact metrics and steers nothing but which files are kept."""
    asked = ("the choice of the kept round, by exact validation losses",) if selection == "exact" else ()
    saving = [one for one in getattr(trainer, "callbacks", []) if isinstance(one, Checkpoint)]
    by = {str(one.monitor) if type(one) is ModelCheckpoint else type(one).__name__ for one in saving}
    return (*asked, *(f"which checkpoints are kept by {name}" for name in sorted(by - {"None", PRIVATE})))
