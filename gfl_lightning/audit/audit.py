"""The audit of one federation: train it, let every adversary attack, and say what each learned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gfl_lightning.audit.by_fellows import by_fellows, by_outsider
from gfl_lightning.audit.by_server import by_server
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.recording import Recording, record
from gfl_lightning.audit.seeing import Seeing
from gfl_lightning.audit.shadowing import shadow_membership
from gfl_lightning.audit.sights import Everything, Sight
from gfl_lightning.audit.stage import Stage
from gfl_lightning.audit.subject import Subject
from gfl_lightning.audit.unturning import undone
from gfl_lightning.checks import require


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Args:
        findings: one for each attack that applies.
        accuracy: of the final model on the test samples, by their true labels.
        seconds: what it took.
        claimed_epsilon: what is promised against the server; ∞ where nothing is.
        nominal_epsilon: what the same mechanisms promise with a secret key; differs where noise is drawn from a seed.
    """

    findings: tuple[Finding, ...]
    accuracy: float
    seconds: float
    claimed_epsilon: float = math.inf
    nominal_epsilon: float = math.inf

    def as_dict(self) -> dict[str, Any]:
        """For strict JSON; an ε of ∞ is ``null``."""
        return {
            "accuracy": None if math.isnan(self.accuracy) else round(self.accuracy, 6),
            "claimed_epsilon": None if math.isinf(self.claimed_epsilon) else self.claimed_epsilon,
            "nominal_epsilon": None if math.isinf(self.nominal_epsilon) else self.nominal_epsilon,
            "seconds": round(self.seconds, 1),
            "findings": [finding.as_dict() for finding in self.findings],
        }


def require_auditable(subject: Subject) -> None:
    """Refuse a federation that the attacks were not made for, before it is trained."""
    federation = subject.build(subject.trained_on(subject.seed), subject.seed)
    require(
        federation.estimator != "exact",
        "estimator",
        "be compensated or v1 for an audit, as no federation could send what the exact one needs",
        federation.estimator,
    )
    require(
        not federation.aggregator.learnable,
        "aggregator",
        "be fixed for an audit, whose attacks do not read aggregates of every hop",
        federation.aggregator,
    )
    require(
        not subject.graph.loss.of_numbers,
        "graph",
        "have classes as labels for an audit, whose attacks on labels guess a class",
        subject.graph.loss,
    )


def audit(
    subject: Subject,
    scale: Scale = Scale(),  # noqa: B008  # frozen
    sight: Sight = Everything(),  # noqa: B008
    before_each: Callable[[], object] = lambda: None,
    recorded: Recording | None = None,
) -> Audit:
    """Attack a federation with all that applies; ``before_each`` round is called while it is trained.

    >>> from gfl_lightning.federated.federation import Federation
    >>> from gfl_lightning.federated.local.options import LocalTraining
    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> build = lambda graph, seed: Federation(graph, local=LocalTraining(lr=0.5, steps=2), seed=seed)
    >>> subject = Subject(DNC(num_clients=50, num_features=20).graph, build, rounds=3)
    >>> found = audit(subject, Scale(victims=4, fellows=2, shadows=0))
    >>> found.findings[0].verdict
    'the server reads every record'

    Args:
        subject: what is audited.
        scale: how much of it is attacked.
        sight: what the server sees; where that is not everything, nothing else is attacked.
        before_each: called before each round.
        recorded: its training, where that was done before.
    """
    started = time.perf_counter()
    cast = Cast.of(subject.truth, subject.seed)
    if recorded is None:
        federation = subject.build(subject.trained_on(subject.seed), subject.seed)
        recorded = record(federation, subject.rounds, before_each)
    stage = Stage(subject, cast, Seeing(recorded, subject.seed), scale)
    findings = by_server(stage, sight)
    if subject.known_to_clients:
        findings += undone(stage)
    elif isinstance(sight, Everything):
        findings += by_fellows(stage) + by_outsider(stage)
        membership = shadow_membership(subject, cast, scale)
        findings += [] if membership is None else [membership]
    accuracy = recorded.accuracy(subject.graph)
    return Audit(tuple(findings), accuracy, time.perf_counter() - started)
