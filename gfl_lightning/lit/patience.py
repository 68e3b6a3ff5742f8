"""Early stopping in rounds: a fit ends when its validation loss has not fallen for so many of them."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from gfl_lightning.checks import require_count
from gfl_lightning.lit.round_module import RoundModule

ON_TABLES = 100


class Patience(Callback):
    """Stops a fit `rounds` rounds after its best one; every round counts, whatever `val_check_interval` is.

    The best round is the module's, so that a resumed fit ends where it would have; one that it has ended stays so
    unless another patience is asked for.

    >>> Patience(50).rounds
    50

    Args:
        rounds: since the best one.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__()
        require_count("patience", rounds)
        self.rounds = rounds

    @property
    def state_key(self) -> str:
        """Another patience is another callback."""
        return self._generate_state_key(rounds=self.rounds)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint knows it by."""
        return {"rounds": self.rounds}

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ask to stop if it is time to."""
        if isinstance(pl_module, RoundModule) and trainer.global_step - pl_module.best.round >= self.rounds:
            trainer.should_stop = True
