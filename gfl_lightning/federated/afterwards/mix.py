"""Which models a client weighs once the rounds are over."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import require, require_count
from gfl_lightning.federated.local.options import MOST_STEPS

MOST_TUNED = 4


@dataclass(frozen=True)
class Mix:
    """p_{k,s} = Σ_j w_kj p_{j,s}: each client's own mean of what several models predict, by its validation samples.

    The models are the one that was trained, and those named here; without any nothing is mixed.

    >>> Mix().is_inert, Mix(steps=[10, 100]).steps
    (True, (10, 100))

    Args:
        fedavg: whether FedAvg is one, trained after the rounds with the same options and no neighbours.
        steps: numbers of steps; after each of them a client's model that trains on alone is one.
    """

    fedavg: bool = False
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        require(len(self.steps) <= MOST_TUNED, "steps", f"be at most {MOST_TUNED} numbers of steps", list(self.steps))
        for one in self.steps:
            require_count("steps", one, most=MOST_STEPS)
        rising = list(self.steps) == sorted(set(self.steps))
        require(rising, "steps", "rise, as a client trains on from one to the next", list(self.steps))

    @property
    def is_inert(self) -> bool:
        """Whether there is nothing to mix."""
        return not self.fedavg and not self.steps

    @property
    def titles(self) -> tuple[str, ...]:
        """The models by name, the one that was trained first."""
        tuned = tuple(f"{one} steps alone" for one in self.steps)
        return ("as trained", *(("FedAvg",) if self.fedavg else ()), *tuned)
