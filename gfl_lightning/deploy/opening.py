"""Before the rounds: sites agree on columns and encoding, and learn what they need of the graph and of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from gfl_lightning.deploy import phases
from gfl_lightning.deploy.agreement import (
    SiteRefusedError,
    agree_on_class_weights,
    agree_on_columns,
    agree_on_encoding,
    agree_on_means,
)
from gfl_lightning.deploy.asking import Asking
from gfl_lightning.deploy.envelope import Outgoing
from gfl_lightning.deploy.progress import Agreement
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.graphs.records.echo import echoes
from gfl_lightning.graphs.records.records import Census


def agree(ask: Asking) -> Agreement:
    """The exchange of columns, sums and squares; every site must take part in it."""
    plan, everyone = ask.plan, list(ask.roster.sites)
    said = _notes(ask, phases.COLUMNS_PHASE, {site: {"plan": plan.fingerprint} for site in everyone})
    try:
        agreed = agree_on_columns(plan.tables, said)
    except SiteRefusedError as refused:
        told = {site: Outgoing(notes={"sentence": sentence}) for site, sentence in refused.sentences.items()}
        ask(phases.REFUSED, 0, told)
        raise
    common = {"features": dict(agreed.features), "classes": list(agreed.classes)}
    sums = _notes(ask, phases.SUMS, dict.fromkeys(everyone, common))
    means = agree_on_means(agreed, sums)
    squares: Mapping[str, Mapping[str, Any]] = {site: {} for site in everyone}
    if means and plan.tables.settings.scaling == "shared":
        squares = _notes(ask, phases.SQUARES, {site: {"means": means} for site in everyone})
    elif means:
        squares = dict.fromkeys(everyone, dict.fromkeys(means, 0.0))
    weights = agree_on_class_weights(plan.tables, agreed, sums)
    counts = {name: int(count) for one in sums.values() for name, count in one["training"].items() if count}
    most = max(int(one["most"]) for one in sums.values())
    return Agreement(agree_on_encoding(plan.tables, agreed, sums, means, squares), weights, counts, most)


def begin(ask: Asking, agreed: Agreement, server: ServerParty, resumed: bool) -> int:
    """Tell sites the encoding, Ã_kk, ρ_k and their clients' places among those that train; how many answered.

    A run that goes on makes do with the sites that are there.
    """
    plan, roster = ask.plan, ask.roster
    training = {roster.number(name): count for name, count in agreed.training.items()}
    place = {k: i for i, k in enumerate(sorted(training))}
    census = Census(len(roster.clients), len(training), agreed.most)
    echo = echoes(server.propagation, torch.tensor(sorted(training)))
    outgoing = {}
    for site, names in roster.sites.items():
        number = {name: roster.number(name) for name in names}
        notes = {
            "plan": plan.fingerprint,
            "encoding": agreed.encoding.state(),
            "class_weights": agreed.class_weights,
            "own": {name: server.own[k].tolist() for name, k in number.items()},
            "echo": {name: float(echo[k]) for name, k in number.items()},
            "place": {name: place[k] for name, k in number.items() if k in place},
            "training_clients": len(training),
            "most": max(training.values()),
            "census": asdict(census),
        }
        outgoing[site] = Outgoing(notes=notes)
    if not resumed:
        return len(ask.everyone(phases.BEGIN, outgoing))
    return len(ask(phases.BEGIN, server.round, outgoing)[0])


def _notes(ask: Asking, phase: str, notes: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """What every site says to some notes."""
    replies = ask.everyone(phase, {site: Outgoing(notes=one) for site, one in notes.items()})
    return {site: reply.notes for site, reply in replies.items()}
