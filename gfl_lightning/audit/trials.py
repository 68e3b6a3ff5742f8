"""Trials: an attack on its targets, one by one, and what guessing without messages would have scored on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gfl_lightning.attacks.attack import Attack
from gfl_lightning.attacks.fellow.distant_edges import DistantEdges
from gfl_lightning.attacks.fellow.neighbour_labels import NeighbourLabels
from gfl_lightning.attacks.fellow.neighbour_records import NeighbourRecords
from gfl_lightning.attacks.fellow.neighbour_words import NeighbourWords
from gfl_lightning.attacks.knowledge import Knowledge, OwnPlace, TwoWorlds
from gfl_lightning.attacks.outsider.neighbourhood_class import NeighbourhoodClass
from gfl_lightning.attacks.server.class_shares import ClassShares
from gfl_lightning.attacks.server.decoded_sample import DecodedSample
from gfl_lightning.attacks.server.flipped_units import FlippedUnits
from gfl_lightning.attacks.server.matched_gradient import MatchedGradient
from gfl_lightning.attacks.server.rank_one import RankOne
from gfl_lightning.attacks.server.update_label import UpdateLabel
from gfl_lightning.attacks.server.update_sample import UpdateSample
from gfl_lightning.attacks.server.which_world import WhichWorld
from gfl_lightning.attacks.views import View
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.findings import Finding, found
from gfl_lightning.audit.intervals import empirical_epsilon
from gfl_lightning.audit.seeing import Seeing
from gfl_lightning.audit.sights import Sight
from gfl_lightning.federated.protocol.messages import JacobianAggregate, RepresentationAggregate
from gfl_lightning.privacy.noise_key import NoiseKey

PUBLIC = "a tenth of the clients' records is public"
GRAPH = f"{PUBLIC}; the graph is known"
NAMED = f"{PUBLIC}, by name"
REST = "all records of the client but one, and two candidates for it"
SEARCHED = 4
PUBLIC_RECORDS = 300


@dataclass(frozen=True, eq=False)
class Trial:
    """One attack on one target."""

    view: View
    knowledge: Any
    truth: Tensor


@dataclass(eq=False)
class Stage:
    """Everything that trials are made from.

    Args:
        cast: who is who, and the truth.
        seeing: the messages of the federation that was trained.
        scale: how many are attacked.
        words: whether features are 0 or 1, such as words that a paper has.
        delta: δ of what is claimed.
    """

    cast: Cast
    seeing: Seeing
    scale: Scale
    words: bool = False
    delta: float = 0.0

    def knowledge(self, samples: int = 1, seed: int = 0) -> Knowledge:
        """What is public."""
        graph, rows = self.cast.graph, self.cast.public_rows[:PUBLIC_RECORDS]
        y = graph.y[rows].clamp_min(0)
        return Knowledge(graph.x[rows], y, graph.num_classes, samples, seed, self.seeing.program.std)

    def place(self, client: int, graph_known: bool) -> OwnPlace:
        """What a fellow client knows besides."""
        graph, known = self.cast.graph, self.knowledge(seed=client)
        near = self.cast.neighbours(client)
        row = self.seeing.row(client)
        noise = {
            RepresentationAggregate: self.seeing.federation.protection.hidden,
            JacobianAggregate: self.seeing.federation.protection.jacobian,
        }
        std = {kind: part.spread * float(row.norm()) for kind, part in noise.items()}
        return OwnPlace(
            known.public_x,
            known.public_y,
            known.num_classes,
            seed=client,
            std=std,
            own_x=graph.x[graph.client == client],
            own_label=max(self.cast.label(client), 0),
            neighbours=row[near] if graph_known else torch.empty(0),
        )

    def server(self, sight: Sight) -> list[Finding]:
        """The server's attacks, by what it sees."""
        one = [j for j in self.cast.order if len(self.cast.shared(j)) == 1][: self.scale.victims]
        several = [j for j in self.cast.order if len(self.cast.shared(j)) > 1][: self.scale.victims]
        trains = self.cast.training_victims(len(self.cast.order))
        alone = [k for k in trains if len(self.cast.training(k)) == 1][: self.scale.victims]
        uniform = [k for k in trains if len(self.cast.graph.y[self.cast.training(k)].unique()) == 1]
        mixed = [k for k in trains if len(self.cast.training(k)) > 1][: self.scale.victims]
        few = self.scale.noisy_rounds if self.seeing.federation.protection.jacobian.is_noisy else 10**6

        def view(j: int) -> View:
            return sight(self.seeing.server(j)).first(few)

        plans: list[tuple[Attack[Any], list[int], Callable[[int], Tensor]]] = [
            (RankOne(), one, lambda j: self.cast.shared(j)[0]),
            (MatchedGradient(), one[:SEARCHED], lambda j: self.cast.shared(j)[0]),
            (FlippedUnits(), several, self.cast.shared),
            (DecodedSample(), self.cast.victims(self.scale.victims), lambda j: self.cast.shared(j).mean(0)),
            (UpdateSample(), alone, lambda k: self.cast.graph.x[self.cast.training(k)[0]]),
            (UpdateLabel(), uniform[: self.scale.victims], lambda k: self.cast.graph.y[self.cast.training(k)[0]]),
            (ClassShares(), mixed, self._class_shares),
        ]
        results = []
        for attack, targets, truth in plans:
            trials = (Trial(view(j), self.knowledge(len(self.cast.shared(j)), j), truth(j)) for j in targets)
            results.append(run(attack, PUBLIC, trials))
        return [one for one in [*results, self._membership(view)] if one is not None]

    def _class_shares(self, client: int) -> Tensor:
        y = self.cast.graph.y[self.cast.training(client)]
        return torch.bincount(y, minlength=self.cast.graph.num_classes).double() / len(y)

    def _membership(self, view: Callable[[int], View]) -> Finding | None:
        """Each client in either world: as it is, and with one record replaced by a public one."""
        attack, right = WhichWorld(), {0: 0, 1: 0}
        program = self.seeing.program.silent
        source = NoiseKey.of_seed(0).source("audit")
        targets = [j for j in self.cast.order if len(self.cast.shared(j))][: 2 * self.scale.victims]
        scores, blind = [], []
        for j in targets:
            records, row = self.cast.shared(j), int(self.cast.public_rows[j % len(self.cast.public_rows)])
            other, drawn = records.clone(), self.seeing.records(j).clone()
            other[0], drawn[0] = self.cast.graph.x[row], self.seeing.federation.graph.x[row]
            known = self.knowledge(len(records), j)
            knowledge = TwoWorlds(
                *(known.public_x, known.public_y, known.num_classes, known.samples, j, known.std),
                worlds=(other, records),
                uploads=lambda W, x: program.uploads(W, x, 0, source),
            )
            sight = view(j)
            if not attack.applies(sight):
                return None
            worlds = {1: sight, 0: replace(sight, rounds=self.seeing.server(j, drawn).rounds[: len(sight)])}
            for world, seen in worlds.items():
                guess = attack.guess(attack.looks_at(seen), knowledge)
                right[world] += int(guess) == world
                scores.append(attack.score(guess, torch.tensor(world)))
                blind.append(attack.score(attack.blind(knowledge), torch.tensor(world)))
        if not scores:
            return None
        n = len(targets)
        return found(attack, REST, scores, blind, empirical_epsilon(right[1], n, right[0], n, self.delta))

    def fellow(self) -> list[Finding]:
        """The attacks of training clients on their neighbours."""
        fellows = self.cast.fellows(self.scale.fellows)
        results = []
        words = self.words
        attacks: tuple[tuple[Attack[OwnPlace], str, bool], ...] = (
            (NeighbourWords(words=words), PUBLIC, False),
            (NeighbourRecords(words=words), PUBLIC, False),
            (NeighbourRecords(words=words), GRAPH, True),
        )
        for attack, knows, graph_known in attacks:
            trials = (
                Trial(self.seeing.fellow(k), self.place(k, graph_known), self._mean_records(self.cast.neighbours(k)))
                for k in fellows
            )
            results.append(run(attack, knows, trials))
        results.append(run(NeighbourLabels(), GRAPH, self._label_trials(fellows)))
        results.append(run(DistantEdges(), NAMED, self._edge_trials(self.cast.fellows(3 * self.scale.fellows))))
        return [one for one in results if one is not None]

    def _mean_records(self, clients: Tensor) -> Tensor:
        return torch.stack([self.cast.shared(j).mean(0) for j in clients.tolist()])

    def _label_trials(self, clients: Iterable[int]) -> Iterable[Trial]:
        c = self.cast.graph.num_classes
        for k in clients:
            labels = torch.tensor([self.cast.label(j) for j in self.cast.neighbours(k).tolist()])
            labels = labels[labels >= 0]
            if len(labels):
                shares = F.one_hot(labels, c).double().mean(0)
                yield Trial(self.seeing.fellow(k), self.place(k, True), shares)

    def _edge_trials(self, clients: Iterable[int]) -> Iterable[Trial]:
        for k in clients:
            near = self.cast.neighbours(k)
            two = torch.cat([self.cast.neighbours(j) for j in near.tolist()])
            asked = self.cast.public[~torch.isin(self.cast.public, torch.cat([near, torch.tensor([k])]))]
            truth = torch.isin(asked, two)
            if bool(truth.any()) and not bool(truth.all()):
                place = replace(self.place(k, False), candidates=self._mean_records(asked))
                yield Trial(self.seeing.fellow(k), place, truth)

    def outsider(self) -> list[Finding]:
        """What the final model alone says of a neighbourhood."""
        trials = []
        for k in self.cast.victims(3 * self.scale.victims):
            labels = torch.tensor([self.cast.label(j) for j in self.cast.neighbours(k).tolist()])
            labels = labels[labels >= 0]
            if len(labels):
                trials.append(Trial(self.seeing.outsider(), self.place(k, False), labels.mode().values))
        one = run(NeighbourhoodClass(), f"{PUBLIC}; the record in the middle is known", trials)
        return [] if one is None else [one]


def run(attack: Attack[Any], knowledge: str, trials: Iterable[Trial]) -> Finding | None:
    """The attack on each target; ``None`` where there is none, or it has not got what it needs."""
    scores: list[float] = []
    blind: list[float] = []
    for trial in trials:
        if not scores and not attack.applies(trial.view):
            return None
        guess = attack.guess(attack.looks_at(trial.view), trial.knowledge)
        scores.append(attack.score(guess, trial.truth))
        blind.append(attack.score(attack.blind(trial.knowledge), trial.truth))
    return found(attack, knowledge, scores, blind) if scores else None
