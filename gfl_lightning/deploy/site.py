"""A site at work: it answers the phases of the server from its own table, and nothing else leaves it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy import phases
from gfl_lightning.deploy.batches import OwnBatches
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.defences import party_for
from gfl_lightning.deploy.envelope import SERVER, Envelope
from gfl_lightning.deploy.evaluation import evaluated
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.rules import Rules
from gfl_lightning.deploy.site_account import SiteAccount, Unaccounted, site_key
from gfl_lightning.deploy.site_model import SiteModel, write_site_model
from gfl_lightning.deploy.site_party import Handler, SiteParty
from gfl_lightning.deploy.site_records import SiteRecords
from gfl_lightning.deploy.site_table import ReadTable, SiteTable
from gfl_lightning.federated.protocol.messages import Message, ModelBroadcast, RepresentationAggregate
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.records.echo import with_echoes
from gfl_lightning.graphs.records.records import Census
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.noise_key import NoiseKey

log = logging.getLogger(__name__)
PROBLEM = "problem"
Answer = tuple[list[Message], dict[str, Any]]


@dataclass(frozen=True)
class OwnClients:
    """A site's name and its clients, with their numbers in the federation.

    >>> OwnClients("north", {"a": 0, "c": 2}).names
    ('a', 'c')

    Args:
        site: its name.
        numbers: of each client by name.
    """

    site: str
    numbers: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients, ascending."""
        return tuple(sorted(self.numbers))

    @property
    def in_order(self) -> tuple[int, ...]:
        """Numbers of the clients in the order of their names."""
        return tuple(self.numbers[name] for name in self.names)


class Site:
    """Answers blobs of the server with blobs.

    Args:
        clients: whom it hosts.
        plan: what was agreed to be done; a server with another plan is refused.
        samples: the site's table, with rows of its clients only.
        folder: where it keeps what it receives.
    """

    def __init__(self, clients: OwnClients, plan: Plan, samples: str, folder: Path) -> None:
        self.clients, self.plan, self.folder = clients, plan, folder
        self.table = SiteTable(samples, plan.tables, clients.names)
        self._read: ReadTable | None = None
        self._encoding: Encoding | None = None
        self._party: SiteParty | None = None
        self._account: SiteAccount | SiteRecords | Unaccounted = Unaccounted()
        self._weights: Weights = {}
        self._weights_of = -1
        self._round = 0

    def answer(self, phase: str, blob: bytes) -> bytes:
        """The reply to a phase; a mistake at the site is told to its operator in full and to the server in a word."""
        t, messages, notes = self._round, list[Message](), dict[str, Any]()
        try:
            envelope = decode(blob, self._rules(phase))
            t = envelope.round
            require(t >= self._round, "round", f"be at least {self._round}, as this site has been there", t)
            self._round = t
            messages, notes = self._handler(phase)(envelope)
            return encode(Envelope(phase, t, self.clients.site, tuple(messages), notes))
        except (InputError, OSError) as mistake:
            log.error("%s, phase %s: %s", self.clients.site, phase, mistake)
            said = f"{type(mistake).__name__} in phase {phase}; the site's log says more"
            return encode(Envelope(phase, t, self.clients.site, (), {PROBLEM: said}))

    def _handler(self, phase: str) -> Handler:
        own: dict[str, Handler] = {
            phases.COLUMNS_PHASE: self._columns,
            phases.SUMS: self._sums,
            phases.SQUARES: self._squares,
            phases.BEGIN: self._begin,
            phases.SHARE: self._share,
            phases.TRAIN: self._train,
            phases.FINISH: self._finish,
            phases.REFUSED: self._refused,
        }
        found = own if self._party is None else own | self._party.handlers()
        require(phase in found, "phase", f"be one of {', '.join(found)}", phase)
        return found[phase]

    def _rules(self, phase: str) -> Rules:
        kinds: Kinds = {}
        most = phases.SLACK
        if self._party is not None:
            kinds = {**phases.kinds_down(phase, self._party.model, self.plan.protocol), **self._party.kinds(phase)}
            most = phases.most_bytes(self._party.model, len(self.clients.numbers)) + self._party.most_bytes(phase)
        return Rules(SERVER, phase, None, kinds, frozenset(self.clients.in_order), most)

    @property
    def party(self) -> SiteParty:
        """The clients, once the encoding is agreed."""
        require(self._party is not None, "phase", "come after begin", "a round")
        assert self._party is not None
        return self._party

    def _columns(self, envelope: Envelope) -> Answer:
        same = envelope.notes.get("plan") == self.plan.fingerprint
        require(same, "plan", "be the one of this site's folder", "another one from the server")
        return [], self.table.columns()

    def _sums(self, envelope: Envelope) -> Answer:
        self._read = self.table.read(envelope.notes["features"], envelope.notes["classes"])
        return [], self._read.sums()

    def _squares(self, envelope: Envelope) -> Answer:
        require(self._read is not None, "phase", "come after sums", envelope.phase)
        assert self._read is not None
        return [], self._read.squares(envelope.notes["means"])

    def _begin(self, envelope: Envelope) -> Answer:
        """Encode the table, and learn Ã_kk of the own clients and their places among those that train."""
        notes = envelope.notes
        require(notes["plan"] == self.plan.fingerprint, "plan", "be the one of this site's folder", "another one")
        encoding = Encoding.from_state(notes["encoding"], "encoding")
        kinds = {code.name: "categorical" if hasattr(code, "categories") else "numeric" for code in encoding.codes}
        self._read = self._read or self.table.read(kinds, encoding.classes)
        counts = self._read.sums()["training"]
        number, private = self.clients.numbers, not self.plan.protection.is_inert
        counted = {number[name]: count for name, count in counts.items() if count}
        place = {number[name]: place for name, place in notes["place"].items()}
        key = site_key(self.folder) if private or self.plan.randomises else NoiseKey.fresh()
        graph = self._records(self._read.graph(encoding, notes["class_weights"]), kinds, Census(**notes["census"]), key)
        if columns := self.plan.records.label_columns(len(encoding.classes)):
            echo = torch.tensor([notes["echo"][name] for name in self.clients.names])
            graph = with_echoes(graph, columns, echo)
        if self.plan.protection.steps.is_inert:
            drawn = (place, counted, notes["training_clients"], notes["most"])
            batches = OwnBatches(*drawn, self.plan.local, self.plan.seed)
        else:
            alone = {k: i for i, k in enumerate(counted)}
            sizes = (len(counted), max(counted.values(), default=1))
            batches = OwnBatches(alone, counted, *sizes, self.plan.local, self.plan.seed, poisson=True, key=key)
        own = torch.tensor([notes["own"][name] for name in self.clients.names], dtype=graph.x.dtype)
        options = self.plan.party(self.plan.model(encoding.num_features, len(encoding.classes)))
        self._encoding = encoding
        speak = party_for(self.plan, self.clients.site, self.folder)
        self._party = speak(SiteParty(graph, self.clients.in_order, own, options, batches, key))
        if private:
            account = self._account = SiteAccount(self.folder, self.plan, options.model, graph)
            if self.plan.tables.tells_statistics(kinds):
                account.told_statistics()
        self._round = envelope.round
        return [], {}

    def _records(self, graph: ClientGraph, features: Iterable[str], census: Census, key: NoiseKey) -> ClientGraph:
        """What the clients take part with."""
        if not self.plan.randomises:
            return self.plan.records.of_some(graph, np.random.default_rng(), census)
        records = SiteRecords(self.folder, self.plan, key, self.plan.tables.tells_statistics(features))
        self._account = records
        return records.drawn(graph, census)

    def _share(self, envelope: Envelope) -> Answer:
        weights, sharing = self._model(envelope), envelope.notes["sharing"]
        uploads = self.party.share(envelope.round, weights, sharing)
        self._account.charge(uploads, self._places(sharing), ())
        return uploads, {}

    def _places(self, clients: Sequence[int]) -> list[int]:
        """Places of some clients among the site's own."""
        return [self.clients.in_order.index(k) for k in clients]

    def _model(self, envelope: Envelope) -> Weights:
        """W̄ of the round: the one that came now, or when it was shared."""
        for broadcast in envelope.of(ModelBroadcast):
            self._weights, self._weights_of = broadcast.weights, envelope.round
        require(self._weights_of == envelope.round, "phase", "come with W̄ of its round, or after it", envelope.phase)
        return self._weights

    def _train(self, envelope: Envelope) -> Answer:
        weights, training = self._model(envelope), envelope.notes["training"]
        sent = [message for message in envelope.messages if not isinstance(message, ModelBroadcast)]
        received = self.party.read(envelope.round, sent)
        models = self.party.train(envelope.round, weights, received, training, envelope.notes["lr"])
        self._account.charge(models, (), self._places(training))
        reports: list[Message] = []
        if self.plan.reports_metrics:
            logits = self.party.logits(weights, received)
            reports.append(evaluated(self.party.graph, logits, ("train", "val")))
        return self.party.sent(envelope.round, models, reports), self.party.notes_on(training, models)

    def _finish(self, envelope: Envelope) -> Answer:
        """Keep the model and C_k for predictions, and tell how it scores."""
        weights, read = self._model(envelope), self.party.read(envelope.round, envelope.messages)
        received = [message for message in read if isinstance(message, RepresentationAggregate)]
        assert self._encoding is not None
        model = SiteModel.of(self.plan, self._encoding, self.clients, self.party.own, weights, received)
        file = write_site_model(self.folder, model)
        log.info("%s: the model of round %s is in %s", self.clients.site, envelope.notes["best_round"], file)
        spent = self._account.report()
        told = {} if spent is None else {"epsilon": repr(spent.epsilon), "gaps": list(spent.gaps)}
        if not self.plan.reports_metrics:
            return [], told
        splits = ("train", "val", "test") if self.plan.reports_test else ("train", "val")
        scores = evaluated(self.party.graph, self.party.logits(weights, received), splits)
        return self.party.sent(envelope.round, [], [scores]), told

    def _refused(self, envelope: Envelope) -> Answer:
        sentence = str(envelope.notes.get("sentence", ""))
        log.error("%s was refused by the server: %s", self.clients.site, sentence)
        return [], {}
