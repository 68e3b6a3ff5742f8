"""How far a run may go: what its ledger holds after more rounds, and how many of them a budget allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gfl_lightning.privacy.ledger import Attendance, Ledger
from gfl_lightning.privacy.releases import Releases

MOST_ROUNDS = 2**24


@dataclass(frozen=True, eq=False)
class Horizon:
    """The rounds that are planned.

    Args:
        releases: what a round releases.
        attendance: tells how often each client trains and shares in some rounds.
        planned: how many rounds there are to be at most; ``None`` where nobody has set a number.
        every: rounds between two validation events, of which one more comes at the end.
        validates: whether clients tell a noisy validation loss at such an event.
    """

    releases: Releases
    attendance: Callable[[range], Attendance]
    planned: int | None
    every: int
    validates: bool

    def at(self, rounds: int, since: Ledger) -> Ledger:
        """The ledger after so many rounds in all, with all of their validation events."""
        ahead = range(since.rounds, max(rounds, since.rounds))
        events = rounds // self.every - since.rounds // self.every + 1 if self.validates else 0
        return since.after(self.releases, self.attendance(ahead), len(ahead), events)

    def after_another(self, ledger: Ledger) -> Ledger:
        """The ledger after one more round, whose validation is counted when it is made."""
        return ledger.after(self.releases, self.attendance(range(ledger.rounds, ledger.rounds + 1)))

    def most_rounds(self, since: Ledger, fits: Callable[[Ledger], bool]) -> int:
        """The largest number of rounds, from those of a ledger up to the plan, after which it still fits a budget."""
        low, high = since.rounds, since.rounds + 1
        while high < MOST_ROUNDS and (self.planned is None or high < self.planned) and fits(self.at(high, since)):
            low, high = high, 2 * high
        high = high if self.planned is None else min(high, self.planned)
        if high > low and fits(self.at(high, since)):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(self.at(middle, since)) else (low, middle)
        return low
