"""What a mask is for: every key is bound to one sum of one round of one run, so that no mask is used twice."""

from __future__ import annotations

from dataclasses import dataclass

SEALED_PHASES = ("share",)


@dataclass(frozen=True)
class Ticket:
    """One masked sum: the run, the round and the phase it belongs to.

    >>> Ticket("run", 3, "share").context("mask") != Ticket("run", 3, "train").context("mask")
    True

    Args:
        run: names the run; one that is resumed keeps it.
        round: t.
        phase: which of the round's sums it is: ``share`` or ``train``.
    """

    run: str
    round: int
    phase: str

    def context(self, purpose: str, *parts: str | bytes) -> bytes:
        """Bytes that no other purpose, ticket or list of parts has: each part goes with its length before it."""
        fields = (purpose, self.run, str(self.round), self.phase, *parts)
        encoded = [field.encode() if isinstance(field, str) else field for field in fields]
        return b"".join(len(field).to_bytes(8, "big") + field for field in encoded)

    def __str__(self) -> str:
        return f"{self.phase} of round {self.round}"
