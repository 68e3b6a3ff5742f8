"""What callbacks that protect a federation have in common."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging

from gfl_lightning.checks import InputError, require
from gfl_lightning.lit.gfl import GFL


class ProtectingCallback(Callback):
    """Sets fields of a federation's `Protection` and `Guarantee` before it is built.

    Args:
        options: the fields.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self._options = options

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Protect the federation that is about to be built; refuse a model that has none."""
        if not isinstance(pl_module, GFL):
            raise InputError(
                f"callbacks.{type(self).__name__} must be used with GFL, whose clients upload something, "
                f"got {type(pl_module).__name__}."
            )
        averaging = [type(other).__name__ for other in _callbacks(trainer) if isinstance(other, WeightAveraging)]
        require(
            not averaging,
            "callbacks",
            "hold no WeightAveraging where uploads are protected, as averaged weights would be shared under used noise",
            averaging,
        )
        pl_module.protect(**self._options)


def _callbacks(trainer: Trainer) -> list[Callback]:
    """The trainer's callbacks; Lightning sets the attribute late, unseen by type checkers."""
    return list(getattr(trainer, "callbacks", []))
