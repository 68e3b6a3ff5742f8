"""The rounds of a deployment at the server: an agreement, then share and train in turns, whoever carries the blobs.

A site that does not answer in time, or with a blob that is refused, is absent from that phase: its clients' last
uploads stand, their models are not in the average. A round is told of once the server's state after it is on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gfl_lightning.deploy import phases
from gfl_lightning.deploy.aggregation import Aggregation
from gfl_lightning.deploy.asking import Asking, TooFewSitesError
from gfl_lightning.deploy.batches import attendance
from gfl_lightning.deploy.defences import aggregation_for
from gfl_lightning.deploy.envelope import Envelope, Outgoing
from gfl_lightning.deploy.evaluation import Evaluation, together
from gfl_lightning.deploy.news import RoundNews
from gfl_lightning.deploy.opening import agree, begin
from gfl_lightning.deploy.outcome import Outcome
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.progress import Agreement, Progress, Store
from gfl_lightning.deploy.roster import Roster
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
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.model import Model


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
    ask: Asking = field(init=False)
    _informed: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.ask = Asking(self.plan, self.roster, self.transport)

    @property
    def weights(self) -> Weights:
        """W̄ after the rounds that were made."""
        assert self.ask.sums is not None
        return self.ask.sums.server.weights

    def run(self) -> Outcome:
        """Agree, make the rounds that are left, and hand the best model to the sites."""
        progress = self.store.read() or Progress(agree(self.ask))
        agreed = progress.agreement
        sums = self.ask.sums = aggregation_for(self.plan, self.roster)(self._server(agreed))
        if progress.sums is not None:
            sums.load(progress.sums)
        self._enough(begin(self.ask, agreed, sums.server, resumed=progress.sums is not None))
        sums.prepare(sums.server.round, self.ask, list(self.roster.sites))
        schedule = attendance(self._training(agreed), len(self.roster.clients), self.plan.participation, self.plan.seed)
        self._share(sums, schedule)
        while sums.server.round < self.plan.rounds:
            started = time.perf_counter()
            progress, news = self._round(sums, schedule, progress)
            self.store.write(progress)
            self.watch(replace(news, seconds=time.perf_counter() - started))
        return self._finish(sums, progress)

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
        sums.shared(t, _messages(replies), missing, self.ask)
        return missing

    def _round(self, sums: Aggregation, schedule: Schedule, progress: Progress) -> tuple[Progress, RoundNews]:
        """Steps 1 and 2, then step 3 at the new W̄."""
        started, server, t = time.perf_counter(), sums.server, sums.server.round
        lr, ages = self.plan.local.lr, self._ages(sums, t)
        training = set(schedule.who_trains(t).tolist())
        before = server.weights
        replies, missing = self._aggregates(sums, phases.TRAIN, t, training, {"lr": lr})
        models = {site: [m for m in reply.messages if not isinstance(m, Evaluation)] for site, reply in replies.items()}
        self._enough(len(replies))
        self._settle(sums, t, models, progress)
        trained, skipped, evaluations = sums.averaged(t, lr, models, missing, self.ask)
        metrics = together([*(one for reply in replies.values() for one in reply.of(Evaluation)), *evaluations])
        skipped += sum(int(reply.notes.get("skipped", 0)) for reply in replies.values())
        untrained = tuple(site for site in self.roster.sites if site not in replies)
        missing |= self._share(sums, schedule)
        best = self._better(progress.best, t, before, metrics)
        seconds = time.perf_counter() - started
        counts = (t + 1, self.plan.rounds, self._told(metrics), trained, skipped)
        news = RoundNews(*counts, missing, untrained, ages, seconds)
        return progress.after(sums.state(), best, seconds, self.ask.take_sent()), news

    def _settle(self, sums: Aggregation, t: int, uploads: Mapping[str, Sequence[Message]], progress: Progress) -> None:
        """Have on disk at once what sites open only once; the round is not over with it."""
        if sums.settled(t, uploads, self.ask):
            self.store.write(replace(progress, sums=sums.state()))

    def _ages(self, sums: Aggregation, t: int) -> dict[str, int]:
        """Age of the oldest upload in use of each site, in rounds."""
        ages = sums.ages(t)
        return {site: max(ages[k] for k in self.roster.numbers(site)) for site in self.roster.sites}

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
            self._settle(sums, T, _messages(replies), progress)
            found = together(sums.evaluations(T, replies, self.ask))
            best = self._better(best, T, server.weights, found)
        if not best.weights:
            best = Best(T, best.val_loss, server.weights)
        last, server.weights = server.weights, best.weights
        missing = dict(self._share(sums, None, T + 1))
        replies, absent = self._aggregates(sums, phases.FINISH, T + 1, set(), {"best_round": best.round})
        server.weights = last
        self._settle(sums, T + 1, _messages(replies), progress)
        test = together(sums.evaluations(T + 1, replies, self.ask))
        self.ask.take_sent()
        spent = {
            site: (float(reply.notes["epsilon"]), tuple(map(str, reply.notes["gaps"])))
            for site, reply in replies.items()
            if "epsilon" in reply.notes
        }
        return Outcome(best, self._told(test), progress, missing | absent, spent)


def _messages(replies: Mapping[str, Envelope]) -> dict[str, Sequence[Message]]:
    return {site: reply.messages for site, reply in replies.items()}
