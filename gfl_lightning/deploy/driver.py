"""The rounds of a deployment at the server: an agreement, then share and train in turns, whoever carries the blobs.

A site that does not answer in time, or with a blob that is refused, is absent from that phase: its clients' last
uploads stand, their models are not in the average. After every exchange the server's state is on disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gfl_lightning.checks import InputError
from gfl_lightning.deploy import phases
from gfl_lightning.deploy.aggregation import Aggregation
from gfl_lightning.deploy.agreement import (
    SiteRefusedError,
    agree_on_class_weights,
    agree_on_columns,
    agree_on_encoding,
    agree_on_means,
)
from gfl_lightning.deploy.batches import attendance
from gfl_lightning.deploy.codec import BlobError, Rules, decode, encode
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.defences import aggregation_for
from gfl_lightning.deploy.envelope import SERVER, Envelope, Outgoing
from gfl_lightning.deploy.evaluation import Evaluation, together
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.progress import Agreement, Progress, Store
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.site import PROBLEM
from gfl_lightning.deploy.transport import Transport
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.evaluation import ClassMetrics
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.weighting import votes
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import propagation
from gfl_lightning.models.model import Model

log = logging.getLogger(__name__)


class TooFewSitesError(RuntimeError):
    """Fewer sites than the plan wants have answered; the rounds made so far are on disk."""


@dataclass(frozen=True)
class RoundNews:
    """What the server knows after a round.

    Args:
        round: rounds made.
        rounds: rounds to be made.
        metrics: of W̄ before the round, by split; nothing where sites do not report any.
        trained: models in the average.
        skipped: models left out of it as they were not finite.
        missing: why each absent site was absent, by site.
        oldest: age in rounds of the oldest upload in use.
        seconds: that the round took.
    """

    round: int
    rounds: int
    metrics: Mapping[str, ClassMetrics]
    trained: int
    skipped: int
    missing: Mapping[str, str]
    oldest: int
    seconds: float


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


@dataclass(eq=False)
class Driver:
    """Runs a plan over a transport.

    Args:
        plan: what is done.
        roster: which clients are at which site.
        graph: of the clients, without data.
        transport: carries blobs.
        store: keeps the state between rounds.
        watch: is told of every round.
    """

    plan: Plan
    roster: Roster
    graph: ClientGraph
    transport: Transport
    store: Store
    watch: Callable[[RoundNews], None] = lambda news: None
    _sums: Aggregation | None = field(default=None, init=False)
    _informed: set[str] = field(default_factory=set, init=False)
    _sent: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0}, init=False)

    def run(self) -> Outcome:
        """Agree, make the rounds that are left, and hand the best model to the sites."""
        progress = self.store.read() or Progress(self._agree())
        agreed = progress.agreement
        sums = self._sums = aggregation_for(self.plan, self.roster)(self._server(agreed))
        if progress.sums is not None:
            sums.load(progress.sums)
        self._begin(agreed, sums.server, resumed=progress.sums is not None)
        sums.prepare(sums.server.round, self.ask, list(self.roster.sites))
        schedule = attendance(self._training(agreed), len(self.roster.clients), self.plan.participation, self.plan.seed)
        self._share(sums, schedule)
        while sums.server.round < self.plan.rounds:
            progress = self._round(sums, schedule, progress)
            self.store.write(progress)
        return self._finish(sums, progress)

    def ask(self, phase: str, t: int, outgoing: Mapping[str, Outgoing]) -> tuple[dict[str, Envelope], dict[str, str]]:
        """Send envelopes and take the replies; one that may not be taken counts as none."""
        blobs = {s: encode(Envelope(phase, t, SERVER, tuple(o.messages), o.notes)) for s, o in outgoing.items()}
        timeout = max(self.plan.timeout, phases.JOINING) if phase in phases.BEFORE_TRAINING else self.plan.timeout
        replies, missing = self.transport.exchange(phase, blobs, timeout)
        good = {}
        for site, blob in replies.items():
            try:
                good[site] = decode(blob, self._rules(site, phase, t))
            except BlobError as refused:
                missing[site] = f"its answer was refused: {refused}"
                continue
            if PROBLEM in good[site].notes:
                missing[site] = str(good.pop(site).notes[PROBLEM])
        self._sent["down"] += sum(map(len, blobs.values()))
        self._sent["up"] += sum(len(blob) for site, blob in replies.items() if site in good)
        for site, why in missing.items():
            log.warning("round %s, phase %s: %s is absent: %s", t, phase, site, why)
        return good, missing

    def _rules(self, site: str, phase: str, t: int) -> Rules:
        kinds: Kinds = {}
        most = phases.SLACK
        if self._sums is not None:
            model = self._sums.server.model
            kinds = {**phases.kinds_up(phase, model, self.plan.protocol), **self._sums.kinds(phase)}
            most = phases.most_bytes(model, len(self.roster.sites.get(site, ()))) + self._sums.most_bytes(phase)
        whose = self.roster.numbers(site) if site in self.roster.sites else ()
        return Rules(site, phase, t, kinds, frozenset(whose), most)

    def _agree(self) -> Agreement:
        """The exchange of columns, sums and squares; every site must take part in it."""
        tables, everyone = self.plan.tables, list(self.roster.sites)
        said = self._all(phases.COLUMNS_PHASE, dict.fromkeys(everyone, Outgoing(notes={"plan": self.plan.fingerprint})))
        try:
            agreed = agree_on_columns(tables, said)
        except SiteRefusedError as refused:
            told = {site: Outgoing(notes={"sentence": sentence}) for site, sentence in refused.sentences.items()}
            self.ask(phases.REFUSED, 0, told)
            raise
        common = Outgoing(notes={"features": dict(agreed.features), "classes": list(agreed.classes)})
        sums = self._all(phases.SUMS, dict.fromkeys(everyone, common))
        means = agree_on_means(agreed, sums)
        squares: Mapping[str, Mapping[str, Any]] = {site: {} for site in everyone}
        if means and tables.settings.scaling == "shared":
            squares = self._all(phases.SQUARES, dict.fromkeys(everyone, Outgoing(notes={"means": means})))
        elif means:
            squares = dict.fromkeys(everyone, dict.fromkeys(means, 0.0))
        weights = agree_on_class_weights(tables, agreed, sums)
        counts = {name: int(count) for one in sums.values() for name, count in one["training"].items() if count}
        return Agreement(agree_on_encoding(tables, agreed, sums, means, squares), weights, counts)

    def _all(self, phase: str, outgoing: Mapping[str, Outgoing]) -> dict[str, Mapping[str, Any]]:
        """The notes of every site; a site without an answer is a mistake."""
        replies, missing = self.ask(phase, 0, outgoing)
        if missing:
            listed = "\n".join(f"  {site}: {why}" for site, why in missing.items())
            raise InputError(f"every site must answer before training, got none of {len(missing)}:\n{listed}")
        return {site: reply.notes for site, reply in replies.items()}

    def _training(self, agreed: Agreement) -> dict[int, int]:
        """Training samples by number of client."""
        return {self.roster.number(name): count for name, count in agreed.training.items()}

    def _server(self, agreed: Agreement) -> ServerParty:
        plan, training = self.plan, self._training(agreed)
        model: Model = plan.model(agreed.encoding.num_features, len(agreed.encoding.classes))
        weights = model.initial_weights(generator(plan.seed, Stream.WEIGHTS))
        schedule = attendance(training, len(self.roster.clients), plan.participation, plan.seed)
        vote = torch.zeros(len(self.roster.clients))
        vote[schedule.training.clients] = votes(schedule.training, plan.weighting)
        A = propagation(self.graph, plan.aggregator.gamma)
        return ServerParty(A, model, weights, vote, plan.server)

    def _begin(self, agreed: Agreement, server: ServerParty, resumed: bool) -> None:
        """Tell each site the encoding, Ã_kk of its clients and their places among those that train."""
        training = self._training(agreed)
        place = {k: i for i, k in enumerate(sorted(training))}
        outgoing = {}
        for site, names in self.roster.sites.items():
            number = {name: self.roster.number(name) for name in names}
            notes = {
                "plan": self.plan.fingerprint,
                "encoding": agreed.encoding.state(),
                "class_weights": agreed.class_weights,
                "own": {name: server.own[k].tolist() for name, k in number.items()},
                "place": {name: place[k] for name, k in number.items() if k in place},
                "training_clients": len(training),
                "most": max(training.values()),
            }
            outgoing[site] = Outgoing(notes=notes)
        replies, missing = self.ask(phases.BEGIN, server.round, outgoing)
        if missing and not resumed:
            raise InputError(f"every site must begin, got none of {', '.join(missing)}.")
        self._enough(len(replies))

    def _enough(self, answered: int) -> None:
        if answered < self.plan.least_sites:
            raise TooFewSitesError(f"{answered} sites answered, and the plan wants {self.plan.least_sites}.")

    def _share(self, sums: Aggregation, schedule: Schedule | None, t: int | None = None) -> Mapping[str, str]:
        """Step 3: W̄ goes to every site, representations and Jacobians come back; ``None`` lets everyone share."""
        server = sums.server
        t = server.round if t is None else t
        sharing = set(range(server.num_clients)) if schedule is None else set(schedule.who_shares(t).tolist())
        broadcast = server.broadcast()
        outgoing = {
            site: Outgoing([broadcast], {"sharing": [k for k in self.roster.numbers(site) if k in sharing]})
            for site in self.roster.sites
        }
        replies, missing = self.ask(phases.SHARE, t, outgoing)
        self._enough(len(replies))
        self._informed = set(replies)
        sums.shared(t, {site: reply.messages for site, reply in replies.items()}, missing, self.ask)
        return missing

    def _round(self, sums: Aggregation, schedule: Schedule, progress: Progress) -> Progress:
        """Steps 1 and 2, then step 3 at the new W̄."""
        started, server, t = time.perf_counter(), sums.server, sums.server.round
        lr, oldest = self.plan.local.lr, max(sums.ages(t))
        training = set(schedule.who_trains(t).tolist())
        before = server.weights
        replies, missing = self._aggregates(sums, phases.TRAIN, t, training, {"lr": lr})
        models = {site: [m for m in reply.messages if not isinstance(m, Evaluation)] for site, reply in replies.items()}
        self._enough(len(replies))
        trained, skipped, evaluations = sums.averaged(t, lr, models, missing, self.ask)
        metrics = together([*(one for reply in replies.values() for one in reply.of(Evaluation)), *evaluations])
        skipped += sum(int(reply.notes.get("skipped", 0)) for reply in replies.values())
        missing |= self._share(sums, schedule)
        best = self._better(progress.best, t, before, metrics)
        seconds = time.perf_counter() - started
        news = RoundNews(t + 1, self.plan.rounds, self._told(metrics), trained, skipped, missing, oldest, seconds)
        self.watch(news)
        return progress.after(sums.state(), best, seconds, self._take_sent())

    def _aggregates(
        self, sums: Aggregation, phase: str, t: int, training: set[int], notes: Mapping[str, Any]
    ) -> tuple[dict[str, Envelope], dict[str, str]]:
        """Send C_k to all clients and ∇C_k to those that train, and W̄ to sites that missed it."""
        outgoing, broadcast = {}, sums.server.broadcast()
        for site in self.roster.sites:
            numbers = self.roster.numbers(site)
            train = [k for k in numbers if k in training]
            messages: Sequence[Message] = sums.aggregates(t, site, numbers, train)
            messages = messages if site in self._informed else [broadcast, *messages]
            outgoing[site] = Outgoing(messages, {"training": train, **notes})
        asked = self.ask(phase, t, outgoing)
        sums.released()
        return asked

    def _told(self, metrics: Mapping[str, ClassMetrics]) -> Mapping[str, ClassMetrics]:
        return metrics if self.plan.reports_metrics else {}

    def _better(self, best: Best, t: int, weights: Any, metrics: Mapping[str, ClassMetrics]) -> Best:
        """The better of the best round so far and round t, whose W̄ has just been scored; round 0 is no candidate."""
        loss = metrics["val"].loss
        better = t > 0 and self.plan.reports_metrics and loss < best.val_loss
        return Best(t, loss, weights) if better else best

    def _finish(self, sums: Aggregation, progress: Progress) -> Outcome:
        """Score the last W̄, then let everyone share once more at the best one and keep it with its C_k."""
        server, T = sums.server, self.plan.rounds
        best = progress.best
        if self.plan.reports_metrics:
            replies, _ = self._aggregates(sums, phases.TRAIN, T, set(), {"lr": self.plan.local.lr})
            found = together(sums.evaluations(T, replies, self.ask))
            best = self._better(best, T, server.weights, found)
        if not best.weights:
            best = Best(T, best.val_loss, server.weights)
        last, server.weights = server.weights, best.weights
        missing = dict(self._share(sums, None, T + 1))
        replies, absent = self._aggregates(sums, phases.FINISH, T + 1, set(), {"best_round": best.round})
        server.weights = last
        test = together(sums.evaluations(T + 1, replies, self.ask))
        self._take_sent()
        spent = {
            site: (float(reply.notes["epsilon"]), tuple(map(str, reply.notes["gaps"])))
            for site, reply in replies.items()
            if "epsilon" in reply.notes
        }
        return Outcome(best, self._told(test), progress, missing | absent, spent)

    def _take_sent(self) -> dict[str, int]:
        sent, self._sent = self._sent, {"up": 0, "down": 0}
        return sent
