"""What steers a fit under a guarantee: metrics of the clients' data may not, unless they are private themselves."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from gfl_lightning.checks import InputError
from gfl_lightning.privacy.guarantee import Selection

PRIVATE = "private_val_loss"
"""The validation loss under noise, as callbacks and schedulers know it."""


def steered_by_data(trainer: Any, validates: bool, plateau: bool) -> bool:
    """Whether a callback stops the fit by the private validation loss; what acts on an exact metric is refused.

    Args:
        trainer: whose callbacks.
        validates: whether there is a private validation loss.
        plateau: whether a scheduler watches a metric.
    """
    stopping = [one for one in getattr(trainer, "callbacks", []) if isinstance(one, EarlyStopping)]
    for callback in stopping:
        if callback.monitor != PRIVATE or not validates:
            raise InputError(
                f"callbacks must hold no EarlyStopping on an exact metric under a guarantee, as when a fit stops would "
                f"tell about its data (monitor {PRIVATE}, with noise on protection.validation, is counted), "
                f"got {callback.monitor!r}."
            )
    if plateau and not validates:
        raise InputError(
            "lr_scheduler must not watch an exact metric under a guarantee, as the rate would tell about the data "
            "(with noise on protection.validation it watches a private one), got ReduceLROnPlateau."
        )
    return bool(stopping)


def outside_the_guarantee(trainer: Any, selection: Selection) -> tuple[str, ...]:
    """What a user has asked for that looks at exact metrics and steers nothing but which files are kept."""
    asked = ("the choice of the kept round, by exact validation losses",) if selection == "exact" else ()
    saving = [one for one in getattr(trainer, "callbacks", []) if isinstance(one, ModelCheckpoint)]
    monitored = sorted({str(one.monitor) for one in saving if one.monitor not in (None, PRIVATE)})
    return (*asked, *(f"which checkpoints are kept by {name}" for name in monitored))
