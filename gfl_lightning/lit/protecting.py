"""What callbacks that protect a federation have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from gfl_lightning.checks import InputError, require
from gfl_lightning.lit.gfl import GFL


class ProtectingCallback(Callback):
    """Sets fields of a federation's `Protection` and `Guarantee` before it is built; what it does not state stays.

    >>> ProtectingCallback({"unit": "sample"}).stated
    {'unit': 'sample'}

    Args:
        stated: the fields.
    """

    def __init__(self, stated: dict[str, Any]) -> None:
        super().__init__()
        self.stated = stated

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Protect the federation that is about to be built; refuse a model that has none."""
        if not isinstance(pl_module, GFL):
            raise InputError(
                f"callbacks.{type(self).__name__} must be used with GFL, whose clients upload something, "
                f"got {type(pl_module).__name__}."
            )
        refuse_contradictions(getattr(trainer, "callbacks", []))
        pl_module.protect(**self.stated)


def refuse_contradictions(callbacks: Sequence[Callback]) -> None:
    """Refuse two callbacks that state the same field: the second would erase what the first one states."""
    protecting = [callback for callback in callbacks if isinstance(callback, ProtectingCallback)]
    for name in {name for callback in protecting for name in callback.stated}:
        stating = [type(callback).__name__ for callback in protecting if name in callback.stated]
        require(len(stating) == 1, "callbacks", f"state {name} once, as a second statement would erase it", stating)
