"""A site whose uploads are masked: what its clients would send goes into sums, and leaves it as random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.envelope import Envelope
from gfl_lightning.deploy.evaluation import COLUMNS, Evaluation
from gfl_lightning.deploy.masking import phases
from gfl_lightning.deploy.masking.columns import SiteColumns
from gfl_lightning.deploy.masking.contributions import SharedVectors
from gfl_lightning.deploy.masking.keys import Identity
from gfl_lightning.deploy.masking.masker import Masker
from gfl_lightning.deploy.masking.messages import Roll, Roster, SealedSum
from gfl_lightning.deploy.masking.model_sum import BASE, ModelSum
from gfl_lightning.deploy.masking.noise import NoiseRule, Whole
from gfl_lightning.deploy.masking.openings import Openings
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.rules import Field
from gfl_lightning.deploy.site_party import Handler, SiteParty
from gfl_lightning.engine.evaluation import SPLITS
from gfl_lightning.federated.protocol.messages import Message, RepresentationAggregate
from gfl_lightning.models.encoders.encoder import Weights

IDENTITY = "identity.key"
Answer = tuple[list[Message], dict[str, Any]]


class MaskedSite(SiteParty):
    """Adds up what its clients contribute to each receiver and to the average, and masks it.

    A client trains in a round only if it has received its sums, so not where its site was missing when they were made.

    Args:
        inner: the site's clients.
        masking: how sums are masked.
        vectors: which numbers are shared.
        name: of the site.
        folder: where its identity and its openings are kept.
        trusted: identities of the sites, known from elsewhere than the server; empty means that its word is taken.
        noise: who puts noise on models.
    """

    def __init__(
        self,
        inner: SiteParty,
        masking: Masking,
        vectors: SharedVectors,
        name: str,
        folder: Path,
        trusted: Mapping[str, bytes] | None = None,
        noise: NoiseRule = Whole(),  # noqa: B008  # frozen
    ) -> None:
        self.graph, self.numbers, self.own, self.model, self.clients = (
            inner.graph,
            inner.numbers,
            inner.own,
            inner.model,
            inner.clients,
        )
        for client in self.clients.values():
            client.whole_factors = vectors.by_factors
        self._inner, self._masking, self._vectors, self._name = inner, masking, vectors, name
        self._trusted = dict(trusted or {})
        self._identity = Identity.kept_in(folder / IDENTITY)
        self._openings = Openings(folder / "openings.jsonl")
        self._masker: Masker | None = None
        self._columns: SiteColumns | None = None
        self._sites: list[str] = []
        self._rows = 0
        self._skipped = 0
        self._noise, self._shares, self._weights = noise, noise.shares(inner.training_clients), dict[str, Tensor]()

    def share(self, t: int, weights: Weights, sharing: Sequence[int]) -> list[Message]:
        """Σ_j Ã_kj v_j over the site's clients, for every receiver, masked; the own clients' sums under a pad too."""
        masker, columns = self._ready()
        masker.forget(t)
        uploads = self._inner.share(t, weights, sharing)
        contribution = self._vectors.contribution(uploads, sorted(self.numbers), columns)
        return [masker.masked(self._ticket(t, phases.SHARE), contribution, self._pads(columns))]

    def read(self, t: int, messages: Sequence[Message]) -> list[Message]:
        """The aggregates of the own clients, without the site's pads."""
        return [one for message in messages for one in self._read(t, message)]

    def _read(self, t: int, message: Message) -> list[Message]:
        if not isinstance(message, SealedSum):
            return [message]
        masker, columns = self._ready()
        ticket, place = self._ticket(t, phases.SHARE), sorted(self.numbers).index(message.client)
        hidden = masker.unsealed(ticket, place, message.hidden)
        gradient = None
        if message.gradient is not None:
            trained = self._gradient_places(columns).index(place)
            gradient = masker.unsealed(ticket, len(self.numbers) + trained, message.gradient)
        return self._vectors.aggregates(message.client, hidden, gradient, self.graph.x)

    def train(
        self, t: int, weights: Weights, received: Sequence[Message], training: Sequence[int], lr: float
    ) -> list[Message]:
        """The models of the clients that train and have received their sums; they do not leave as they are."""
        have = {message.client for message in received if isinstance(message, RepresentationAggregate)}
        ready = [k for k in training if k in have or self.model.aggregator.isolates]
        self._weights = weights
        models = self._inner.train(t, weights, received, ready, lr)
        self._skipped = len(ready) - len(models)
        return models

    def sent(self, t: int, models: Sequence[Message], reports: Sequence[Message]) -> list[Message]:
        """Σ_k vote_k W_k over the site's clients, and sums of metrics, masked; its shares of noise beside them."""
        masker, columns = self._ready()
        votes = self._noise.votes(dict(zip(sorted(self.numbers), columns.votes.tolist(), strict=True)))
        most = BASE**2 * self._masking.code.limit(len(self._sites))
        scores = sum(
            (one.sums for one in reports if isinstance(one, Evaluation)), torch.zeros(len(SPLITS), COLUMNS).double()
        )
        finite = scores.flatten().nan_to_num(most, most, most).clamp(-most, most)
        bounded = self._noise.bounded(models, self._weights)
        numbers = ModelSum.of(bounded, votes, self._skipped, self.model.shapes, finite).numbers()
        self._skipped = 0
        beside = self._noise.beside(self._shares, numbers, self.model.num_weights)
        return [masker.masked(self._ticket(t, phases.TRAIN), numbers, beside=beside)]

    def logits(self, weights: Weights, received: Sequence[Message]) -> Tensor:
        """As the clients predict."""
        return self._inner.logits(weights, received)

    def notes_on(self, training: Sequence[int], models: Sequence[Message]) -> dict[str, Any]:
        """Nothing: how many trained is in the sum."""
        return {}

    def most_bytes(self, phase: str) -> int:
        """Sealed numbers take twice as much as plain ones, and columns of Ã come before the first."""
        numbers = self._vectors.hidden + self._vectors.gradient + self._rows
        return 8 * self.own.shape[1] * len(self.numbers) * numbers

    def handlers(self) -> dict[str, Handler]:
        """The phases of masks."""
        return {
            phases.ENROL: self._enrol,
            phases.KEYS: self._keys,
            phases.ROSTER: self._roster,
            phases.OPEN: self._open,
        }

    def kinds(self, phase: str) -> Kinds:
        """What the server sends in the phases of masks, and sealed sums in place of aggregates."""
        sites, sums = self._sites, 2 * self._masking.rounds_ahead
        word = torch.int64 if self._masking.bits == 64 else torch.int32
        hops, n, N = self.own.shape[1], len(self.numbers), self._rows
        sealed = {
            "hidden": Field(((hops * self._vectors.hidden,),), word),
            "gradient": Field(((hops * self._vectors.gradient,),), word, optional=True),
        }
        columns = {
            "coefficients": Field(((N, hops, n),), torch.float64),
            "trains": Field(((N,),), torch.bool),
            "mine": Field(((n,),), torch.int64),
            "votes": Field(((n,),), torch.float64),
        }
        found: dict[str, Kinds] = {
            phases.KEYS: {Roll: phases.roll(sites)},
            phases.ROSTER: {Roster: phases.roster(sites, sums), SiteColumns: columns},
            phases.TRAIN: {SealedSum: sealed},
            phases.FINISH: {SealedSum: sealed},
        }
        return found.get(phase, {})

    def _enrol(self, envelope: Envelope) -> Answer:
        """A fresh box key for the run."""
        run = str(envelope.notes["run"])
        self._rows, self._sites = int(envelope.notes["clients"]), [str(site) for site in envelope.notes["sites"]]
        self._masker = Masker(
            self._name,
            self._identity,
            run,
            self._masking.code,
            self._masking.quorum,
            self._trusted,
            self._openings,
            len(self._sites),
            self._shares,
        )
        return [self._masker.enrol()], {}

    def _keys(self, envelope: Envelope) -> Answer:
        """Meet the others, and prepare the sums of the next rounds."""
        (roll,) = envelope.of(Roll)
        masker = self._known()
        masker.meet(roll)
        return [masker.prepare(self._tickets(envelope.round))], {}

    def _roster(self, envelope: Envelope) -> Answer:
        """Take up what the others prepared, and what the own clients contribute to whom."""
        (roster,), (columns,) = envelope.of(Roster), envelope.of(SiteColumns)
        self._known().learn(self._tickets(envelope.round), roster)
        self._columns = columns
        return [], {}

    def _open(self, envelope: Envelope) -> Answer:
        """Help to open a sum."""
        ticket = self._ticket(envelope.round, str(envelope.notes["phase"]))
        masker, survivors = self._known(), list(envelope.notes["survivors"])
        if ticket.phase == phases.TRAIN:
            require(set(survivors) <= set(masker.shares_of), "survivors", "be sites of the roll", survivors)
            self._noise.require_enough_for(self._name, ticket, masker.shares_of, survivors)
        return [masker.open(ticket, survivors)], {}

    def _tickets(self, t: int) -> list[Ticket]:
        return phases.tickets_from(self._known().run, t, self._masking.rounds_ahead)

    def _ticket(self, t: int, phase: str) -> Ticket:
        return Ticket(self._known().run, t, phase)

    def _known(self) -> Masker:
        require(self._masker is not None, "phase", f"come after {phases.ENROL}", "a phase of masks")
        assert self._masker is not None
        return self._masker

    def _ready(self) -> tuple[Masker, SiteColumns]:
        if self._masker is None or self._columns is None:
            raise InputError("a masked round must come after the exchange of keys, got one before it.")
        return self._masker, self._columns

    def _pads(self, columns: SiteColumns) -> list[slice]:
        """The parts of a sum that are the own clients': C_k of all, then ∇C_k of those that train."""
        of_hidden, of_gradient = self._vectors.parts(columns)
        return [*of_hidden, *(part for part in of_gradient if part is not None)]

    def _gradient_places(self, columns: SiteColumns) -> list[int]:
        """Places among the own clients of those that train."""
        return [place for place, part in enumerate(self._vectors.parts(columns)[1]) if part is not None]
