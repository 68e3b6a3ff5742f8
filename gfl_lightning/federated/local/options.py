"""How clients train: typed, checked choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gfl_lightning.checks import require, require_count, require_rate

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
        require(self.weight_decay >= 0, "weight_decay", "be at least 0", self.weight_decay)
        require(self.proximal >= 0, "proximal", "be at least 0", self.proximal)

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update is −η g and nothing else, as in the paper."""
        return self.momentum == self.weight_decay == self.proximal == 0
