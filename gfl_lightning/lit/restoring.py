"""Where a checkpoint becomes the state of a fit: what fails on the way is the checkpoint's fault, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.trainer.connectors.checkpoint_connector import _CheckpointConnector

from gfl_lightning.checks import InputError


@contextmanager
def taking_up(argument: str) -> Iterator[None]:
    """Turn any failure to make something of a checkpoint, which ``argument`` names, into a refusal of it.

    >>> with taking_up("ckpt_path"):
    ...     {}["rounds"]
    Traceback (most recent call last):
    gfl_lightning.checks.InputError: ckpt_path must hold a state that this run can take up, got KeyError: 'rounds'.
    """
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as failure:
        reason = f"{type(failure).__name__}: {failure}".splitlines()[0].rstrip(".")
        raise InputError(f"{argument} must hold a state that this run can take up, got {reason}.") from failure


class RestoringConnector(_CheckpointConnector):
    """Lightning's, with every failure in one sentence."""

    def _restore_modules_and_callbacks(self, *arguments: Any, **options: Any) -> None:
        with taking_up("ckpt_path"):
            super()._restore_modules_and_callbacks(*arguments, **options)
            for callback in self.trainer.checkpoint_callbacks:
                if isinstance(callback, ModelCheckpoint):
                    _keep_to_its_folder(callback)

    def restore_training_state(self) -> None:
        """Loops, optimizers and schedulers."""
        with taking_up("ckpt_path"):
            super().restore_training_state()


def _keep_to_its_folder(callback: ModelCheckpoint) -> None:
    """Let files that a checkpoint names be replaced where they are the callback's own, and nowhere else.

    Lightning removes what such a state names if the name begins with the callback's folder, whatever `..` follows.
    """
    home = Path(str(callback.dirpath)).resolve()

    def placed(name: Any) -> str:
        whole = Path(str(name)).resolve()
        return str(name) if not name or home in whole.parents else str(whole)

    for attribute in ("best_model_path", "kth_best_model_path", "last_model_path"):
        setattr(callback, attribute, placed(getattr(callback, attribute)))
    callback.best_k_models = {placed(name): score for name, score in callback.best_k_models.items()}
