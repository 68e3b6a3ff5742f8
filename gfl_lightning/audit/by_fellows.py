"""The attacks of training clients on their neighbours, and of an outsider on a neighbourhood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Attack
from gfl_lightning.attacks.fellow.distant_edges import DistantEdges
from gfl_lightning.attacks.fellow.neighbour_labels import NeighbourLabels
from gfl_lightning.attacks.fellow.neighbour_records import NeighbourRecords
from gfl_lightning.attacks.fellow.neighbour_words import NeighbourWords
from gfl_lightning.attacks.outsider.neighbourhood_class import NeighbourhoodClass
from gfl_lightning.attacks.views import View
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.stage import ALL, ALONE, GRAPH, NAMED, PUBLIC, Stage
from gfl_lightning.audit.trials import Tally, Trial, run

FAR = 3
"""Clients that ask who is whose neighbour, for each one with other questions; few have anybody to ask about."""
MORE_ROUNDS = 24


def by_fellows(stage: Stage) -> list[Finding]:
    """What a client learns of its neighbours; what it receives is made once for all its attacks."""
    words = stage.subject.words
    attacks: list[tuple[Attack[Any], str]] = [
        (NeighbourWords(words=words), ALONE),
        (NeighbourWords(words=words), PUBLIC),
        (NeighbourWords(words=words), ALL),
        (NeighbourRecords(words=words), PUBLIC),
        (NeighbourRecords(words=words), ALL),
        (NeighbourLabels(), PUBLIC),
        (NeighbourLabels(), GRAPH),
        (DistantEdges() if stage.large else DistantEdges(rounds=MORE_ROUNDS), NAMED),
    ]
    tallies = [Tally(attack, knows) for attack, knows in attacks]
    few, most = stage.scale.noisy_rounds, stage.scale.fellows
    for number, k in enumerate(stage.cast.fellows(most if stage.costly else FAR * most)):
        view = stage.seeing.fellow(k)
        view = (shortened(view, few) if stage.costly else view).held()
        for tally in tallies:
            if number < most or isinstance(tally.attack, DistantEdges):
                for trial in trials_of(stage, tally, k, view):
                    tally.add(trial)
    return [one for tally in tallies for one in tally.finding()]


def shortened(view: View, most: int) -> View:
    """The first rounds and the last, whose model knows most."""
    return replace(view, rounds=(*view.rounds[:-1][: most - 1], view.rounds[-1]))


def trials_of(stage: Stage, tally: Tally, client: int, view: View) -> Iterator[Trial]:
    """What an attack asks a client about: one trial, or none where there is nobody to ask about."""
    near = stage.cast.neighbours(client)
    if isinstance(tally.attack, DistantEdges):
        public = stage.cast.public
        two = torch.cat([stage.cast.neighbours(j) for j in near.tolist()])
        asked = public[~torch.isin(public, torch.cat([near, torch.tensor([client])]))]
        asked = asked[torch.tensor([len(stage.cast.shared(j)) > 0 for j in asked.tolist()], dtype=torch.bool)]
        truth = torch.isin(asked, two)
        if bool(truth.any()) and not bool(truth.all()):
            place = replace(stage.place(client, tally.knows), candidates=stage.records_of(asked))
            yield Trial(view, place, truth)
    elif isinstance(tally.attack, NeighbourLabels):
        labels = _labels(stage, near)
        if len(labels):
            shares = F.one_hot(labels, stage.cast.graph.num_classes).double().mean(0)
            yield Trial(view, stage.place(client, tally.knows), shares)
    else:
        near = near[~torch.isin(near, stage.cast.public)] if tally.knows == ALL else near
        near = near[torch.tensor([len(stage.cast.shared(j)) > 0 for j in near.tolist()], dtype=torch.bool)]
        if len(near):
            yield Trial(view, stage.place(client, tally.knows), stage.mean_records(near))


def _labels(stage: Stage, clients: Tensor) -> Tensor:
    """The labels of clients that have one."""
    labels = torch.tensor([stage.cast.label(j) for j in clients.tolist()], dtype=torch.int64)
    return labels[labels >= 0]


def by_outsider(stage: Stage) -> list[Finding]:
    """What the final model alone says of a neighbourhood."""
    trials = []
    for k in stage.cast.victims(3 * stage.scale.victims):
        labels = _labels(stage, stage.cast.neighbours(k))
        if len(labels):
            trials.append(Trial(stage.seeing.outsider(), stage.place(k, PUBLIC), labels.mode().values))
    return run(NeighbourhoodClass(), f"{PUBLIC}; the record in the middle is known", trials)
