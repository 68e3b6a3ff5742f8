"""How clients train, who takes part and how the server averages: typed, checked choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gfl_lightning.checks import require, require_count

Estimator = Literal["compensated", "v1", "exact"]
ProtocolName = Literal["jacobian", "gram"]
Path = Literal["auto", "dual", "primal", "general"]


def require_choice(argument: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    require(value in choices, argument, f"be one of {', '.join(choices)}", value)


def require_rate(argument: str, value: float) -> None:
    """Refuse a learning rate that is not positive and finite."""
    require(0 < value < math.inf, argument, "be positive and finite", value)


@dataclass(frozen=True)
class LocalTraining:
    """What a training client does in a round.

    Args:
        lr: η.
        steps: I, local updates between two exchanges.
        batch_size: samples per update and client; ``None``, or more than a client has, means all of them.
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
        require_count("steps (I)", self.steps)
        if self.batch_size is not None:
            require_count("batch_size", self.batch_size)
        require(0 <= self.momentum < 1, "momentum", "lie in [0, 1)", self.momentum)
        require(self.weight_decay >= 0, "weight_decay", "be at least 0", self.weight_decay)
        require(self.proximal >= 0, "proximal", "be at least 0", self.proximal)

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update is −η g and nothing else, as in the paper."""
        return self.momentum == self.weight_decay == self.proximal == 0


@dataclass(frozen=True)
class Participation:
    """Who takes part in a round, drawn anew each time without replacement.

    A float is a fraction of the clients (of those that can train, or of all for sharing), an int a number; 1.0 is
    everyone. A client that does not share is represented by its last upload; one that never did contributes
    nothing, and its weight in Ã is not given to others.
    """

    train: float | int = 1.0
    share: float | int = 1.0

    def __post_init__(self) -> None:
        for name in ("train", "share"):
            value = getattr(self, name)
            if isinstance(value, float):
                require(0 < value <= 1, name, "be a fraction in (0, 1]", value)
            else:
                whole = type(value) is int and value >= 1
                require(whole, name, "be a number of clients of at least 1", value)

    @staticmethod
    def count(part: float | int, of: int) -> int:
        """How many of ``of`` clients a fraction or number means."""
        return max(1, round(part * of)) if isinstance(part, float) else min(part, of)


@dataclass(frozen=True)
class Server:
    """How the server turns the clients' average W̃ into the next W̄.

    Args:
        weighting: ``uniform`` over the clients that trained (the paper), or by their numbers of ``samples``.
        optimizer: ``average`` takes W̃ itself; ``momentum`` and ``adam`` (FedAdam) treat W̄ − W̃ as a gradient.
        lr: server rate of ``momentum`` and ``adam``.
        momentum: β of ``momentum``, and β₁ of ``adam``.
        beta2: β₂ of ``adam``.
        tau: τ of ``adam``, the adaptivity floor.
    """

    weighting: Literal["uniform", "samples"] = "uniform"
    optimizer: Literal["average", "momentum", "adam"] = "average"
    lr: float = 1.0
    momentum: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        require_choice("weighting", self.weighting, ("uniform", "samples"))
        require_choice("optimizer", self.optimizer, ("average", "momentum", "adam"))
        require_rate("server lr", self.lr)
        require(0 <= self.momentum < 1, "server momentum", "lie in [0, 1)", self.momentum)
        require(0 <= self.beta2 < 1, "beta2", "lie in [0, 1)", self.beta2)
        require(self.tau > 0, "tau", "be positive", self.tau)
