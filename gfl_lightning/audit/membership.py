"""The server's membership game: is a record among a client's, all others of the client being known?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from gfl_lightning.attacks.knowledge import TwoWorlds
from gfl_lightning.attacks.server.which_world import WhichWorld
from gfl_lightning.attacks.views import View
from gfl_lightning.audit.findings import Finding, found
from gfl_lightning.audit.intervals import empirical_epsilon
from gfl_lightning.audit.stage import Stage
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.privacy.noise_key import NoiseKey

REST = "all records of the client but one, and two candidates for it"
BY_NAME = "; a tenth of the clients' records, by name"
MANY, FEW = 4, 2
"""Clients that are asked about, for each target of other attacks; fewer where it takes long."""


def membership(stage: Stage, view: Callable[[int], View]) -> list[Finding]:
    """Each client in either world: as it is, and with one record replaced by a public one."""
    attack, right = WhichWorld(), {0: 0, 1: 0}
    program = stage.seeing.program.silent
    source = NoiseKey.of_seed(0).source("audit")
    most = (FEW if stage.costly else MANY) * stage.scale.victims
    targets = [j for j in stage.cast.order if len(stage.cast.shared(j))][:most]
    stand_in = {j: int(rows[j % len(rows)]) for j in targets if len(rows := stage.public_rows_like(j))}
    other = _with_others(stage, stand_in)
    landmarks = _landmarks(stage)
    scores, blind = [], []
    for j, row in stand_in.items():
        sight = view(j)
        if not attack.applies(sight):
            continue
        records = stage.cast.shared(j)
        without = records.clone()
        without[0] = stage.cast.graph.x[row]
        known = stage.knowledge(j)
        knowledge = TwoWorlds(
            *(
                known.public_x,
                known.public_y,
                known.num_classes,
                known.samples,
                j,
                known.std,
                known.bound,
                known.disguise,
            ),
            worlds=(without, records),
            uploads=lambda W, x: program.uploads(W, x, 0, source),
            landmarks=landmarks,
        )
        there = stage.seeing.server(j, other.x[(other.client == j) & other.shared])
        for world, seen in {1: sight, 0: replace(sight, rounds=there.rounds[: len(sight)])}.items():
            guess = attack.guess(attack.looks_at(seen), knowledge)
            right[world] += int(guess) == world
            scores.append(attack.score(guess, torch.tensor(world)))
            blind.append(attack.score(attack.blind(knowledge), torch.tensor(world)))
    if not scores:
        return []
    n, knows = len(scores) // 2, REST + (BY_NAME if len(landmarks[0]) else "")
    return [found(attack, knows, scores, blind, empirical_epsilon(right[1], n, right[0], n, stage.subject.delta))]


def _with_others(stage: Stage, stand_in: dict[int, int]) -> ClientGraph:
    """What clients would take part with, had each target the record of its stand-in for its first one."""
    graph, seen = stage.subject.graph, stage.cast.graph
    labelled = (graph.shared & graph.mask(Split.TRAIN)).nonzero().flatten()
    origin = torch.cat([torch.arange(graph.num_samples), labelled])  # rows that share a label are added at the end
    first = [int(((seen.client == j) & seen.shared).nonzero()[0]) for j in stand_in]
    x = graph.x.clone()
    x[origin[first]] = graph.x[origin[list(stand_in.values())]]
    return stage.subject.records.of(replace(graph, x=x), np.random.default_rng((stage.subject.seed, 1)))


def _landmarks(stage: Stage) -> tuple[torch.Tensor, torch.Tensor]:
    """Public records and how the server reads them, where a rotation hides all others."""
    graph, turned = stage.cast.graph, stage.seeing.federation.graph
    rows = stage.cast.public_rows if stage.subject.known_to_clients else stage.cast.public_rows[:0]
    return graph.x[rows], turned.x[rows]
