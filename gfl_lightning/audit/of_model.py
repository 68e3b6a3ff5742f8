"""The audit of a model that is set up on a graph: its rounds are charged, its ε stands beside what attacks prove."""

from __future__ import annotations

import math
from dataclasses import replace

from gfl_lightning.audit.audit import Audit, audit, require_auditable
from gfl_lightning.audit.cast import Scale
from gfl_lightning.audit.sights import Everything, Sight
from gfl_lightning.audit.subject import Build, Subject
from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.privacy.noise_key import NoiseKey


def audited(
    model: GFL,
    graph: ClientGraph,
    rounds: int,
    scale: Scale = Scale(),  # noqa: B008  # frozen
    records: Records | None = None,
    sight: Sight = Everything(),  # noqa: B008
) -> Audit:
    """Attack the federation of a model whose protection is planned.

    Args:
        model: what would be fitted.
        graph: the true records.
        rounds: how many are made.
        scale: how much of the federation is attacked.
        records: what clients take part with in place of the model's own.
        sight: what the server sees.
    """
    model.begin_rounds(0, {})
    delta = model.account.guarantee.delta if model.account.protects else 0.0
    subject = Subject(graph, builder(model), rounds, model.seed, records or model.records, delta)
    require_auditable(subject)
    found = audit(subject, scale, sight, before_each=model.charge_round)
    report = model.privacy
    if report is not None:
        return replace(found, claimed_epsilon=report.epsilon, nominal_epsilon=report.nominal)
    return replace(found, nominal_epsilon=math.inf if records is None else records.epsilon)


def builder(model: GFL) -> Build:
    """Makes federations of a model: its own, and with other seeds others, with noise of their own."""

    def build(graph: ClientGraph, seed: int) -> Federation:
        own = seed == model.seed or not model.noise_key.reproducible  # a secret key binds its noise to the data
        key = model.noise_key if own else NoiseKey.of_seed(seed)
        return model.federation_on(graph, seed, model.account.in_force, key)

    return build
