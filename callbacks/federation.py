"""What callbacks on the clients' uploads need: a model that has clients."""

from __future__ import annotations

from pytorch_lightning import Callback, LightningModule

from gfl_lightning.checks import InputError
from gfl_lightning.lit.gfl import GFL


def federated(callback: Callback, module: LightningModule) -> GFL:
    """The module, if it is a federation."""
    if not isinstance(module, GFL):
        raise InputError(
            f"callbacks.{type(callback).__name__} must be used with GFL, whose clients upload something, "
            f"got {type(module).__name__}."
        )
    return module
