"""What a fit's privacy comes to, in numbers and in sentences that stand alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Ledger
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import KINDS, Releases

UNITS = {"client": "one client's whole data set", "sample": "one sample of a client"}
RELATIONS = {"replace": "replaced by any other", "zero_out": "present or replaced by nothing"}


@dataclass(frozen=True)
class PrivacyReport:
    """ε against both adversaries and what it refers to.

    Args:
        epsilon: against the server, who sees every upload.
        epsilon_fellow: against another client, who sees C_k, ∇C_k and W̄.
        signal: the most that one C_k alone shows of an upload, as a share of its signal over noise.
        delta: δ.
        unit: what is protected, and what a neighbouring federation has in its place.
        composed: which releases are counted, each by every client that takes part in a round.
        gaps: what was released without protection; nothing is guaranteed while there is any.
        accountant: how ε was computed.
        protection: bounds and noise, by part.
    """

    epsilon: float
    epsilon_fellow: float
    signal: float
    delta: float
    unit: str
    composed: str
    gaps: tuple[str, ...]
    accountant: str
    protection: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For a file, with its sentences."""
        return asdict(self) | {"sentence": self.sentence(), "scope": self.scope()}

    def sentence(self) -> str:
        """The guarantee, or that there is none and why."""
        if math.isinf(self.epsilon):
            return f"no guarantee: ε = ∞, unprotected: {', '.join(self.gaps) or 'a release without noise'}"
        return (
            f"ε = {self.epsilon:.4g} against the server, {self.epsilon_fellow:.4g} against a fellow client, "
            f"at δ = {self.delta:g} ({self.accountant})"
        )

    def scope(self) -> str:
        """What the guarantee is about."""
        return f"unit: {self.unit}; composed: {self.composed}"


def privacy_report(ledger: Ledger, made: Releases, protection: Protection, guarantee: Guarantee) -> PrivacyReport:
    """The report on a ledger."""
    server, fellow = ledger.epsilon(made, guarantee)
    shown = " + ".join(KINDS[kind] for kind in ("update", "hidden", "jacobian") if made.facts.entries[kind])
    sampled = any(rate < 1 for _, rate, _ in ledger.steps)
    return PrivacyReport(
        server,
        fellow,
        made.facts.signal,
        guarantee.delta,
        f"{UNITS[protection.unit]}, {RELATIONS[guarantee.neighbours]}",
        f"{shown} in {ledger.rounds} rounds, by every client that takes part",
        ledger.gaps,
        (guarantee.accountant.upper() if sampled else "exact")
        + (" and basic composition" if ledger.pure.any() else ""),
        protection.in_words(),
    )
