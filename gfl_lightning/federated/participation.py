"""Who takes part in a round: typed, checked choices."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import require


@dataclass(frozen=True)
class Participation:
    """Who takes part in a round, drawn anew each time without replacement.

    A client that does not share is represented by its last upload; one that never did contributes nothing, and its
    weight in Ã is not given to others.

    >>> Participation.count(0.1, of=50), Participation.count(3, of=50)
    (5, 3)

    Args:
        train: fraction (1.0 is everyone) or number (1 is one client) of the training clients that train.
        share: fraction or number of all clients that share their representation.
    """

    train: int | float = 1.0
    share: int | float = 1.0

    def __post_init__(self) -> None:
        for name in ("train", "share"):
            value = getattr(self, name)
            if isinstance(value, float):
                require(0 < value <= 1, name, "be a fraction in (0, 1]", value)
            else:
                whole = type(value) is int and value >= 1
                require(whole, name, "be a number of clients of at least 1", value)

    def require_fit(self, training: int, clients: int) -> None:
        """Refuse a number of clients that there are not."""
        for name, most in (("train", training), ("share", clients)):
            part = getattr(self, name)
            require(isinstance(part, float) or part <= most, name, f"be at most {most}, the clients there are", part)

    @staticmethod
    def count(part: int | float, of: int) -> int:
        """How many of ``of`` clients a fraction or number means."""
        return max(1, round(part * of)) if isinstance(part, float) else min(part, of)
