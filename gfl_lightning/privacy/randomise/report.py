"""What randomised records promise, in a summary's words, and what may stand beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from gfl_lightning.checks import require
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.report import RELATIONS, UNITS, PrivacyReport
from gfl_lightning.privacy.shared_ledger import Entry, Total

COMPOSED = (
    "one randomised record each, before the first round; rounds, messages, the model and the choice of the best round "
    "are made of it alone (true labels enter the experimenter's test metric, and nothing else)"
)

FROM_A_SEED = "records (drawn from noise_seed, so that who knows it can draw them again)"


@dataclass(frozen=True)
class RecordsReport(PrivacyReport):
    """ε of records that were randomised once: the same against everybody, whatever the rounds."""

    def sentence(self) -> str:
        """The guarantee, or that there is none and why."""
        if self.gaps:
            return super().sentence()
        kind = "pure, δ = 0" if self.delta == 0 else f"δ = {self.delta:g}"
        told = f"ε = {self.epsilon:.4g} ({kind}) against everybody, paid once for any number of rounds"
        return told + self.of_all_runs()


def records_report(
    records: Records, key: NoiseKey, statistics: tuple[str, ...] = (), total: Total | None = None
) -> RecordsReport:
    """The report on records that promise something.

    Draws from a seed undo the promise, and so do ``statistics`` of the records as they were, told without noise.
    """
    gaps = ((FROM_A_SEED,) if key.reproducible else ()) + statistics
    epsilon = math.inf if gaps else records.epsilon
    options = {field.name: getattr(records, field.name) for field in fields(records)}  # type: ignore[arg-type]
    plain = {name: value if isinstance(value, (int, float, str)) else repr(value) for name, value in options.items()}
    words: dict[str, Any] = {"mechanism": type(records).__name__, **plain}
    return RecordsReport(
        epsilon=epsilon,
        epsilon_fellow=epsilon,
        colluding=1,
        signal=1.0,
        delta=records.delta,
        unit=f"{UNITS[records.unit]}, {RELATIONS['replace']}",
        composed=COMPOSED,
        gaps=gaps,
        outside=(),
        nominal=math.inf if statistics else records.epsilon,
        accountant="post-processing",
        protection={"records": words},
        total=total,
    )


def records_entry(records: Records, mark: str) -> Entry:
    """One randomisation on a ledger: by the draw, so that the same draw is written down once."""
    epsilon, unit = records.epsilon, f"{UNITS[records.unit]}, {RELATIONS['replace']}"
    return Entry(f"records {mark[:32]}", epsilon, records.delta, unit, "records randomised once")


def require_claim(records: Records, protection: Protection, guarantee: Guarantee, asked: bool) -> None:
    """Refuse a protection of what is private already, and a claim that randomised records do not keep.

    ``asked`` tells whether anybody stated a claim.
    """
    inert = protection.is_inert
    require(
        inert, "protection", "be left out where records are randomised, as all that is uploaded is private", protection
    )
    if not asked:
        return
    budget = guarantee.max_epsilon
    fits = budget is None or records.epsilon <= budget
    require(fits, "max_epsilon", f"be at least the {records.epsilon:g} of the randomised records", budget)
    require(not guarantee.calibrate, "calibrate", "be false where records are randomised, which state their ε", True)
    require(
        records.delta <= guarantee.delta, "delta", f"be at least the {records.delta:g} of the records", guarantee.delta
    )
    same = protection.unit == records.unit
    require(same, "unit", f"be {records.unit} as that of the randomised records", protection.unit)


def require_apart(records: Records, protection: Protection) -> None:
    """Refuse DP-SGD for single samples where labels are shared: their echo is in every training row of their client."""
    apart = protection.steps.is_inert or protection.unit == "client" or not records.label_columns(1)
    require(apart, "records", "share no labels where DP-SGD protects single samples, as each hears the others", records)
