"""What a deployment reached, in the words of `fit`: one record, one file, one screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gfl_lightning.deploy.folders import ServerFolder, read_json
from gfl_lightning.deploy.plan import PARTS, Plan
from gfl_lightning.deploy.progress import Agreement, Progress
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.evaluation import ClassMetrics
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.traffic import Attendance, TrafficMeter
from gfl_lightning.parts import describe
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.randomise.report import records_report
from gfl_lightning.privacy.report import EXPERIMENTER, PrivacyReport, unit_in_words
from gfl_lightning.reports.summary import Fit, write_summary

OF_RECORDS = (
    "one randomised record each, drawn at its site before anything of it left; messages, the model and the choice of "
    "the best round are made of records alone, and nothing is told of test rows"
)
NOT_TOLD = ClassMetrics(math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Outcome:
    """What a deployment has reached.

    Args:
        best: the round that was kept.
        test: metrics of its weights at the sites, by split; nothing where sites do not report any.
        progress: rounds, seconds and bytes.
        missing: sites that did not get the model.
        spent: ε of each site's account, and what nothing protects there; nothing where uploads are not protected.
    """

    best: Best
    test: Mapping[str, ClassMetrics]
    progress: Progress
    missing: Mapping[str, str]
    spent: Mapping[str, tuple[float, tuple[str, ...]]]


@dataclass(frozen=True)
class SiteTables:
    """The data of a deployment, as a summary names them.

    Args:
        sites: how many sites.
        clients: how many clients they host.
        task: of the tables.
    """

    sites: int
    clients: int
    task: str


def write_outcome(folder: ServerFolder, outcome: Outcome) -> None:
    """Write ``summary.json`` into the folder of the run."""
    write_summary(folder.run, record(folder, outcome))


def record(folder: ServerFolder, outcome: Outcome) -> dict[str, Any]:
    """The record that `fit` writes, of a deployment."""
    plan, roster, progress = folder.plan, folder.roster, outcome.progress
    data = SiteTables(len(roster.sites), len(roster.clients), plan.tables.settings.task)
    sent = {f"bytes_{way}": float(count) for way, count in progress.sent.items()}
    fit = Fit(
        status="finished",
        model="GFL",
        parts={"data": data, **_parts(plan)},
        best=outcome.best,
        test=outcome.test.get("test", NOT_TOLD),
        rounds=plan.rounds,
        updates_per_round=plan.local.steps,
        seconds=progress.seconds,
        totals=sent | _printed(plan, roster, progress.agreement),
        privacy=_privacy(plan, outcome),
        seed=plan.seed,
    )
    return fit.record() | {"missing": dict(outcome.missing)}


def _privacy(plan: Plan, outcome: Outcome) -> PrivacyReport | None:
    """The largest ε of the sites' accounts; one that did not tell has spent anything."""
    if plan.protection.is_inert and not plan.randomises:
        return None
    told = list(outcome.spent.values())
    unknown = () if not outcome.missing else (f"what {', '.join(sorted(outcome.missing))} has spent is not known",)
    gaps = tuple(dict.fromkeys(gap for _, one in told for gap in one)) + unknown
    epsilon = math.inf if gaps or not told else max(one for one, _ in told)
    if plan.randomises:
        report = records_report(plan.records, NoiseKey.fresh(), gaps)
        return replace(report, epsilon=epsilon, epsilon_fellow=epsilon, composed=OF_RECORDS)
    return PrivacyReport(
        epsilon=epsilon,
        epsilon_fellow=epsilon,
        colluding=plan.guarantee.colluding,
        signal=1.0,
        delta=plan.guarantee.delta,
        unit=unit_in_words(plan.protection, plan.guarantee),
        composed="everything that a client has uploaded, by the account of its site",
        gaps=gaps,
        outside=(EXPERIMENTER,),
        nominal=epsilon,
        accountant="by site",
        protection=plan.protection.in_words(),
    )


def _printed(plan: Plan, roster: Roster, agreed: Agreement) -> dict[str, float]:
    """Bytes that the rounds take under the printed protocol, without headers."""
    model = plan.model(agreed.encoding.num_features, len(agreed.encoding.classes))
    meter = TrafficMeter(model, plan.estimator == "compensated" and not plan.aggregator.isolates, itemsize=4)
    trained = Participation.count(plan.participation.train, len(agreed.training))
    shared = Participation.count(plan.participation.share, len(roster.clients))
    who = Attendance(trained, 0, shared, 0, 0, max(trained, shared), stale=False)
    traffic = meter.measure(who, "jacobian")
    return {
        "printed_bytes_up": float(plan.rounds * traffic.total_up),
        "printed_bytes_down": float(plan.rounds * traffic.total_down),
    }


def _parts(plan: Plan) -> dict[str, Any]:
    shown = {field.name for field in fields(plan) if field.name in PARTS} - (set() if plan.masking.on else {"masking"})
    return {field.name: describe(getattr(plan, field.name)) for field in fields(plan) if field.name in shown}


def read_outcome(folder: ServerFolder) -> dict[str, Any] | None:
    """The record of a deployment that is over, as :func:`record` made it."""
    file = folder.run / "summary.json"
    return _with_numbers(read_json(file)) if file.is_file() else None


def _with_numbers(value: Any) -> Any:
    """The value with the numbers that JSON does not know as numbers again, not as text.

    >>> _with_numbers({"test_loss": "nan", "parts": [{"clip": "inf"}], "model": "GFL"})
    {'test_loss': nan, 'parts': [{'clip': inf}], 'model': 'GFL'}
    """
    if isinstance(value, dict):
        return {name: _with_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_numbers(one) for one in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
