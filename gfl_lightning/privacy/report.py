"""What a fit's privacy comes to, in numbers and in sentences that stand alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Ledger
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import KINDS, Releases
from gfl_lightning.privacy.shared_ledger import Total

UNITS = {"client": "one client's whole data set", "sample": "one sample of a client"}
RELATIONS = {"replace": "replaced by any other", "zero_out": "present or replaced by nothing"}


EXPERIMENTER = "metrics and files of the run but what `export` writes, which are the experimenter's own"


@dataclass(frozen=True)
class PrivacyReport:
    """ε against both adversaries and what it refers to.

    Args:
        epsilon: against the server, who sees every upload.
        epsilon_fellow: against ``colluding`` other clients, who see C_k, ∇C_k and W̄.
        colluding: m.
        signal: the most that one C_k alone shows of an upload, as a share of its signal over noise.
        delta: δ.
        unit: what is protected, and what a neighbouring federation has in its place.
        composed: which releases are counted, each by every client that takes part in a round.
        gaps: what was released without protection; nothing is guaranteed while there is any.
        outside: what looks at the data and is not covered: whoever publishes it releases more.
        nominal: ε against the server had the noise been secret, where it is drawn from a seed; else the same ε.
        accountant: how ε was computed.
        protection: bounds and noise, by part.
        total: ε, δ and number of all runs on the ledger, if there is one.
    """

    epsilon: float
    epsilon_fellow: float
    colluding: int
    signal: float
    delta: float
    unit: str
    composed: str
    gaps: tuple[str, ...]
    outside: tuple[str, ...]
    nominal: float
    accountant: str
    protection: dict[str, Any]
    total: Total | None = None

    def as_dict(self) -> dict[str, Any]:
        """For a file, with its sentences."""
        return asdict(self) | {"sentence": self.sentence(), "scope": self.scope()}

    def public(self) -> dict[str, Any]:
        """What may be told with the weights: ε, δ, the unit and the adversary, or why there is no ε."""
        return {
            "epsilon": float(self.epsilon),
            "delta": self.delta,
            "unit": self.unit,
            "adversary": "the server, who sees every upload, and whoever sees less",
            "gaps": list(self.gaps),
        }

    def sentence(self) -> str:
        """The guarantee, or that there is none and why."""
        if math.isinf(self.epsilon):
            told = f"no guarantee: ε = ∞, unprotected: {', '.join(self.gaps) or 'a release without noise'}"
            return told if math.isinf(self.nominal) else f"{told}; ε = {self.nominal:.4g} had the noise been secret"
        fellows = "a fellow client" if self.colluding == 1 else f"{self.colluding} colluding fellow clients"
        told = (
            f"ε = {self.epsilon:.4g} against the server, {self.epsilon_fellow:.4g} against {fellows}, "
            f"at δ = {self.delta:g} ({self.accountant})"
        )
        return told + self.of_all_runs()

    def of_all_runs(self) -> str:
        """What all runs on the ledger come to, where there are several."""
        if self.total is None or self.total.runs < 2:
            return ""
        return f"; all {self.total.runs} runs on the ledger: ε = {self.total.epsilon:.4g}, δ = {self.total.delta:g}"

    def scope(self) -> str:
        """What the guarantee is about, and what it is not."""
        told = f"unit: {self.unit}; composed: {self.composed}"
        return f"{told}; not covered: {', '.join(self.outside)}" if self.outside else told


def unit_in_words(protection: Protection, guarantee: Guarantee) -> str:
    """What is protected, and what a neighbouring federation has in its place."""
    return f"{UNITS[protection.unit]}, {RELATIONS[guarantee.neighbours]}"


def privacy_report(
    ledger: Ledger,
    rounds: int,
    made: Releases,
    protection: Protection,
    guarantee: Guarantee,
    noise_is_public: bool = False,
    outside: tuple[str, ...] = (),
    total: Total | None = None,
) -> PrivacyReport:
    """The report on a ledger of all rounds that were allowed, of which ``rounds`` were made."""
    server, fellow = ledger.epsilon(made, guarantee)
    told = [kind for kind in ("update", "hidden", "jacobian") if made.facts.entries[kind]]
    shown = " + ".join(KINDS[kind] for kind in (*told, *(["validation"] if protection.validation.is_noisy else [])))
    sampled = any(rate < 1 for _, rate, _ in ledger.steps)
    count = f"{rounds} rounds" if rounds == ledger.rounds else f"{ledger.rounds} rounds, {rounds} of them made"
    report = PrivacyReport(
        epsilon=server,
        epsilon_fellow=fellow,
        colluding=guarantee.colluding,
        signal=made.facts.signal,
        delta=guarantee.delta,
        unit=unit_in_words(protection, guarantee),
        composed=f"{shown} in {count}, by every client that takes part",
        gaps=ledger.gaps,
        outside=(*outside, EXPERIMENTER),
        nominal=server,
        accountant=(guarantee.accountant.upper() if sampled else "exact")
        + (" and basic composition" if ledger.pure.any() else ""),
        protection=protection.in_words(),
        total=total,
    )
    if ledger.gaps or not noise_is_public:
        return report
    gaps = ("all noise (drawn from a seed: who knows it can subtract it)",)
    return replace(report, epsilon=math.inf, epsilon_fellow=math.inf, gaps=gaps)
