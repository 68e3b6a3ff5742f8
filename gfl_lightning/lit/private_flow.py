"""What steers a fit under a guarantee: metrics of the clients' data may not, unless they are private themselves."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import Checkpoint, EarlyStopping, ModelCheckpoint, Timer, WeightAveraging
from pytorch_lightning.trainer.states import TrainerFn, TrainerStatus
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gfl_lightning.checks import InputError, require
from gfl_lightning.lit.patience import Patience
from gfl_lightning.lit.schedulers import is_timed
from gfl_lightning.privacy.guarantee import Selection

PRIVATE = "private_val_loss"
"""The validation loss under noise, as callbacks and schedulers know it."""
OTHER_RATE = "the rate (set by something else than its scheduler, which may have seen the data)"
OTHER_STOP = "when the fit stopped (a callback that nothing is known of asked for it)"
INTERRUPTED = "when the fit was interrupted"


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
    known = scheduler is None or is_timed(scheduler) or type(scheduler) is ReduceLROnPlateau
    return () if known else (f"the rate ({type(scheduler).__name__} is not known to look at time alone)",)


def stopped_by_others(trainer: Any, whole: bool) -> bool:
    """Whether a fit has ended, or is asked to, by something else than its plan, time or the private validation loss.

    ``whole`` says that every round that was planned has been made, and no more.
    """
    if whole or any(type(one) is Timer and _is_over(one) for one in trainer.callbacks):
        return False
    return not any(_has_stopped(one, trainer) for one in trainer.callbacks if isinstance(one, EarlyStopping))


def was_interrupted(trainer: Any) -> bool:
    """Whether the last thing that a trainer did was a fit that ended in the middle, by a signal or a failure."""
    return trainer.state.fn == TrainerFn.FITTING and trainer.state.status == TrainerStatus.INTERRUPTED


def _is_over(timer: Timer) -> bool:
    left = timer.time_remaining()
    return left is not None and left <= 0


def _has_stopped(one: EarlyStopping, trainer: Any) -> bool:
    """Whether patience with the private loss is over, or it has crossed a threshold."""
    told = trainer.callback_metrics.get(PRIVATE)
    if one.wait_count >= one.patience or told is None:
        return one.wait_count >= one.patience
    reached = one.stopping_threshold is not None and bool(one.monitor_op(told, one.stopping_threshold))
    lost = one.divergence_threshold is not None and bool(one.monitor_op(-told, -one.divergence_threshold))
    return reached or lost


def rate_of_others(trainer: Any, expected: float) -> bool:
    """Whether the rate is another than a timetable has it, or than that of a scheduler that keeps to none."""
    free = [one.scheduler for one in trainer.lr_scheduler_configs if not is_timed(one.scheduler)]
    expected = free[0].get_last_lr()[0] if free else expected
    return any(carrier.param_groups[0]["lr"] != expected for carrier in trainer.optimizers)


def outside_the_guarantee(trainer: Any, selection: Selection) -> tuple[str, ...]:
    """What a user has asked for that looks at exact metrics and steers nothing but which files are kept."""
    asked = ("the choice of the kept round, by exact validation losses",) if selection == "exact" else ()
    saving = [one for one in getattr(trainer, "callbacks", []) if isinstance(one, Checkpoint)]
    by = {str(one.monitor) if type(one) is ModelCheckpoint else type(one).__name__ for one in saving}
    return (*asked, *(f"which checkpoints are kept by {name}" for name in sorted(by - {"None", PRIVATE})))
