"""The outsider's membership game: many federations, each with a random half of the training records replaced."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gfl_lightning.attacks.knowledge import Shadows
from gfl_lightning.attacks.outsider.shadow_membership import ShadowMembership
from gfl_lightning.attacks.views import Round, View
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.findings import Finding, found
from gfl_lightning.audit.intervals import two_way_interval
from gfl_lightning.audit.recording import record
from gfl_lightning.audit.subject import Subject
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights

LEAST_SHADOWS, RECORDS = 4, 100
KNOWS = "federations of its own on data like these, with and without the record"


def shadow_membership(subject: Subject, cast: Cast, scale: Scale) -> Finding | None:
    """Each federation in turn is the target, the others are the outsider's own."""
    graph = subject.graph
    source = torch.Generator().manual_seed(subject.seed)
    training = graph.mask(Split.TRAIN) & ~torch.isin(graph.client, cast.public)
    rows = training.nonzero().flatten()
    if scale.shadows < LEAST_SHADOWS or not len(rows):
        return None
    rows = rows[torch.randperm(len(rows), generator=source)[:RECORDS]]
    member = _halves(scale.shadows, len(rows), source)
    stand_in = _of_the_same_class(cast, rows, source)
    models: list[Weights] = []
    for number in range(scale.shadows):
        x = graph.x.clone()
        x[rows[~member[number]]] = graph.x[stand_in[~member[number]]]
        seed = subject.seed + 1 + number
        federation = subject.build(subject.trained_on(seed, replace(graph, x=x)), seed)
        try:
            models.append(record(federation, subject.rounds, kept=set()).final)
        except DivergedError:
            return None
    return _played(cast, rows, member, models, federation.encoder)


def _played(cast: Cast, rows: Tensor, member: Tensor, models: list[Weights], encoder: SizedEncoder) -> Finding:
    """Every record in every federation: was it in?"""
    attack, graph, public = ShadowMembership(), cast.graph, cast.public_rows
    right: list[list[float]] = []
    for place, row in enumerate(rows.tolist()):
        right.append([])
        for target in range(len(models)):
            others = [number for number in range(len(models)) if number != target]
            knowledge = Shadows(
                graph.x[public],
                graph.y[public].clamp_min(0),
                graph.num_classes,
                record=graph.x[row],
                label=int(graph.y[row]),
                models=tuple(models[number] for number in others),
                member=tuple(bool(member[number, place]) for number in others),
            )
            guess = attack.guess(View.of(encoder, [Round(models[target])]), knowledge)
            right[-1].append(attack.score(guess, member[target, place]))
    scores = [sum(one) / len(one) for one in right]
    return found(attack, KNOWS, scores, [0.5] * len(scores), bounds=two_way_interval(right))


def _halves(shadows: int, records: int, source: torch.Generator) -> Tensor:
    """Which record is in which federation, each in half of them ``[shadows, records]``."""
    order = torch.rand(shadows, records, generator=source).argsort(0).argsort(0)
    return order < shadows // 2


def _of_the_same_class(cast: Cast, rows: Tensor, source: torch.Generator) -> Tensor:
    """For each record a public one of its class to stand in for it, or any where there is none."""
    graph, public = cast.graph, cast.public_rows
    chosen = []
    for row in rows.tolist():
        same = public[graph.y[public] == graph.y[row]]
        pool = same if len(same) else public
        chosen.append(int(pool[int(torch.randint(len(pool), (), generator=source))]))
    return torch.tensor(chosen)
