"""What the server keeps on disk: the agreement, the state after the last round, the best round and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gfl_lightning.deploy.state_file import read_state, write_state
from gfl_lightning.engine.best import Best
from gfl_lightning.graphs.tables.encoding import Encoding


@dataclass(frozen=True)
class Agreement:
    """What the sites agreed on before training.

    Args:
        encoding: of the features.
        class_weights: of each class.
        training: training rows of each client that has any, by its name.
        most: the most labels in use that one of the clients has.
    """

    encoding: Encoding
    class_weights: list[float]
    training: Mapping[str, int]
    most: int = 1

    def state(self) -> dict[str, Any]:
        """Plain containers."""
        kept = {"class_weights": self.class_weights, "training": dict(self.training), "most": self.most}
        return {"encoding": self.encoding.state(), **kept}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Agreement:
        """From what :meth:`state` returned."""
        kept = (state["class_weights"], state["training"], state["most"])
        return cls(Encoding.from_state(state["encoding"], "checkpoint"), *kept)


@dataclass(frozen=True)
class Progress:
    """Where a deployment stands.

    Args:
        agreement: of the sites.
        sums: state of the aggregation after the last round; ``None`` before the first.
        best: the best round so far.
        seconds: that the rounds took.
        sent: bytes of blobs, ``up`` and ``down``.
    """

    agreement: Agreement
    sums: Any = None
    best: Best = field(default_factory=Best)
    seconds: float = 0.0
    sent: Mapping[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})

    def after(self, sums: Any, best: Best, seconds: float, sent: Mapping[str, int]) -> Progress:
        """The progress after one more round."""
        total = {way: self.sent[way] + sent[way] for way in self.sent}
        return replace(self, sums=sums, best=best, seconds=self.seconds + seconds, sent=total)


@dataclass(frozen=True)
class Store:
    """A file that holds the progress of a deployment, always whole.

    Args:
        file: where.
    """

    file: Path

    def write(self, progress: Progress) -> None:
        """Keep it."""
        best = progress.best
        write_state(
            self.file,
            {
                "agreement": progress.agreement.state(),
                "sums": progress.sums,
                "best": {"round": best.round, "val_loss": best.val_loss, "weights": best.weights},
                "seconds": progress.seconds,
                "sent": dict(progress.sent),
            },
        )

    def read(self) -> Progress | None:
        """What is kept, if anything is."""
        if not self.file.is_file():
            return None
        state = read_state(self.file)
        best = Best(**state["best"])
        kept = (state["sums"], best, state["seconds"], state["sent"])
        return Progress(Agreement.from_state(state["agreement"]), *kept)
