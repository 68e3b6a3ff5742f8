"""How clients train: typed, checked choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gfl_lightning.checks import LARGEST_RATE, require, require_count, require_rate

Estimator = Literal["compensated", "v1", "exact"]
ESTIMATORS = ("compensated", "v1", "exact")
Path = Literal["auto", "dual", "primal", "linear", "general"]
PATHS = ("auto", "dual", "primal", "linear", "general")

MOST_STEPS = 100_000
"""A round with more would not come to an end, and nothing could stop it."""


@dataclass(frozen=True)
class LocalTraining:
    """What a training client does in a round.

    >>> LocalTraining(lr=0.1, steps=5).is_plain_sgd
    True

    Args:
        lr: η.
        steps: I, local updates between two exchanges.
        batch_size: samples per update and client; none, or more than a client has, means all of them.
        momentum: heavy-ball momentum within a round (the buffer starts at zero in each).
        weight_decay: coefficient of W in the gradient.
        proximal: FedProx's μ, coefficient of W − W̄ in the gradient.
    """

    lr: float = 0.5
    steps: int = 10
    batch_size: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0

    def __post_init__(self) -> None:
        require_rate("lr", self.lr)
        require_count("steps (I)", self.steps, most=MOST_STEPS)
        if self.batch_size is not None:
            require_count("batch_size", self.batch_size)
        require(0 <= self.momentum < 1, "momentum", "lie in [0, 1)", self.momentum)
        for name in ("weight_decay", "proximal"):
            value = getattr(self, name)
            require(value >= 0, name, "be at least 0", value)
            require(value <= LARGEST_RATE / 2, name, f"be at most {LARGEST_RATE / 2:g}, as 32 bits hold no more", value)

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update is −η g and nothing else, as in the paper."""
        return self.momentum == self.weight_decay == self.proximal == 0
