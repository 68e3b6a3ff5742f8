"""How many sites it takes to open a sum, and how many it must hide."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.deploy.masking.ticket import Ticket


@dataclass(frozen=True)
class Quorum:
    """t of n sites open a sum, with 2t > n: two sets of t sites have one in common, and no site helps twice.

    >>> Quorum().threshold_of(8)
    5

    Args:
        threshold: t; ``None`` is the least majority. Sums survive n − t sites that drop out, and t − 1 sites that tell
            the server everything.
        least: how many sites a sum must hold beside each that learns it. With one, the sum would be that site's.
    """

    threshold: int | None = None
    least: int = 2

    def __post_init__(self) -> None:
        require_count("least", self.least)
        if self.threshold is not None:
            require_count("threshold", self.threshold, least=2)

    def threshold_of(self, sites: int) -> int:
        """t for n sites; too few sites are refused."""
        require(sites > self.least, "sites", f"be at least {self.least + 1} for masked sums", sites)
        threshold = sites // 2 + 1 if self.threshold is None else self.threshold
        fits = sites < 2 * threshold <= 2 * sites
        require(fits, "threshold", f"be more than half of the {sites} sites and no more than all", threshold)
        return threshold

    def require_enough(self, ticket: Ticket, survivors: Collection[str], sites: int) -> None:
        """Refuse to open a sum over too few."""
        needed = max(self.threshold_of(sites), self.least + 1)
        if len(survivors) < needed:
            names = ", ".join(sorted(survivors)) or "no site"
            raise InputError(
                f"{ticket} must have the uploads of at least {needed} of {sites} sites to be opened, got {names}."
            )
