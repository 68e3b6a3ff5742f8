"""The server of a federation whose sums are masked: it passes keys on, opens sums and reads only the average model."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy.aggregation import Aggregation, Ask, Averaged
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.envelope import Envelope, Outgoing
from gfl_lightning.deploy.evaluation import COLUMNS, Evaluation
from gfl_lightning.deploy.masking import phases
from gfl_lightning.deploy.masking.columns import Columns, check_neighbours
from gfl_lightning.deploy.masking.contributions import SharedVectors
from gfl_lightning.deploy.masking.fixed_point import Words
from gfl_lightning.deploy.masking.messages import Enrolment, MaskedUpload, Opening, Preparation, SealedSum
from gfl_lightning.deploy.masking.model_sum import ModelSum
from gfl_lightning.deploy.masking.noise import NoiseRule, Whole
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.masking.unmasker import Unmasker
from gfl_lightning.deploy.rules import Field
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.engine.evaluation import SPLITS
from gfl_lightning.federated.exchange.neighbourhood import rows_by_hop
from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.federated.protocol.server_party import ServerParty

MOST_CLIENTS = 4096
M = TypeVar("M", bound=Message)


class NotOpenedError(RuntimeError):
    """Too few sites were there for a sum, which stays masked; the rounds made so far are on disk."""


@dataclass(frozen=True, eq=False)
class _Opened:
    """The sums of what was shared, each under its receiver's pad, and the sites that are in them."""

    words: Words
    survivors: frozenset[str]
    withheld: frozenset[int]


@dataclass(eq=False)
class MaskedAggregation(Aggregation):
    """C_k, ∇C_k and W̃ as masked sums over sites. No upload is kept: a site that is missing contributes nothing.

    Sites open each sum of models over one set of sites alone, also after a restart. So a sum that was opened is in the
    checkpoint before anything else happens: a round that is made again, maybe with other sites, needs no second one.

    Args:
        server: Ã, W̄, the votes and the server's optimizer.
        masking: how sums are masked.
        vectors: which numbers are shared.
        site_of: the site of each client.
        names: of the clients, for refusals.
        noise: who puts noise on models.
    """

    server: ServerParty
    masking: Masking
    vectors: SharedVectors
    site_of: Sequence[str]
    names: Sequence[str]
    noise: NoiseRule = Whole()  # noqa: RUF009  # frozen
    run: str = field(default_factory=lambda: secrets.token_hex(16), init=False)
    _unmasker: Unmasker = field(init=False)
    _columns: Columns = field(init=False)
    _until: int = field(default=0, init=False)
    _opened: _Opened | None = field(default=None, init=False)
    _in_use: frozenset[str] = field(default=frozenset(), init=False)
    _shares: dict[str, int] = field(default_factory=dict, init=False)
    _read: dict[int, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        N = self.server.num_clients
        require(N <= MOST_CLIENTS, "clients", f"be at most {MOST_CLIENTS} for masked sums, which need all of Ã", N)
        self._unmasker = Unmasker(self.masking.code, self.masking.quorum, len(set(self.site_of)))
        others, _ = rows_by_hop(self.server.propagation, torch.arange(N), self.server.model.aggregator.learnable)
        self._columns = Columns.of(others, self.server.votes, self.site_of, set(self.site_of))
        self._check(set(self.site_of))

    def prepare(self, t: int, ask: Ask, sites: Sequence[str]) -> None:
        """Keys for the rounds from t on."""
        self._agree(t, ask, sites)

    def shared(self, t: int, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask) -> None:
        """Open the sums of what was shared; the pads of the receivers stay on."""
        ticket = Ticket(self.run, t, phases.SHARE)
        words, survivors = self._total(ticket, uploads, ask)
        withheld = self._columns.exposed(survivors, self.masking.least) if self._refuses else ()
        self._opened, self._in_use = _Opened(words, frozenset(survivors), frozenset(withheld)), frozenset(survivors)

    def aggregates(self, t: int, site: str, clients: Sequence[int], training: Sequence[int]) -> list[Message]:
        """The sums of a site's clients, sealed; none for a site that is not in them and so has put on no pad."""
        if self._opened is None or site not in self._opened.survivors:
            return []
        tensor = self.masking.code.tensor
        of_hidden, of_gradient = self.vectors.parts_of_rows(
            self._columns.rows_of(site), self._columns.trains, self._columns.others.shape[1]
        )
        messages: list[Message] = []
        for k, hidden, gradient in zip(self._columns.clients_of(site), of_hidden, of_gradient, strict=True):
            if k in clients and k not in self._opened.withheld:
                wanted = gradient if k in training else None
                part = None if wanted is None else tensor(self._opened.words[wanted])
                messages.append(SealedSum(k, tensor(self._opened.words[hidden]), part))
        return messages

    def settled(self, t: int, uploads: Mapping[str, Sequence[Message]], ask: Ask) -> bool:
        """Open the sum of round t, unless that was done before or there is none."""
        if t in self._read or not any(uploads.values()):
            return False
        words, _ = self._total(Ticket(self.run, t, phases.TRAIN), uploads, ask)
        self._read = self._still_needed | {t: self.masking.code.decode(words)}
        return True

    def averaged(
        self, t: int, lr: float, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask
    ) -> Averaged:
        """Make the next W̄ of Σ_k vote_k W_k, and renew keys where they are used up."""
        if t not in self._read:
            raise NotOpenedError(f"train of round {t} must have uploads to be opened, got none.")
        summed = self._models(t)
        if not summed.trained:
            raise DivergedError(
                f"lr must be small enough for finite updates, got {lr}: in round {t + 1} the update of every training "
                "client became non-finite."
            )
        self.server.take(summed.average)
        if t + 2 >= self._until:
            self._agree(t + 1, ask, sorted(set(self.site_of)))
        return Averaged(summed.trained, summed.skipped, [_evaluation(summed)])

    def evaluations(self, t: int, replies: Mapping[str, Envelope], ask: Ask) -> Sequence[Evaluation]:
        """Sums of metrics over all sites, opened like models."""
        return [_evaluation(self._models(t))] if t in self._read else []

    def released(self) -> None:
        """Nothing of what was shared is kept."""
        self._opened = None

    def ages(self, t: int) -> list[int]:
        """0 for the clients in the sums, −1 for the others."""
        return [0 if site in self._in_use else -1 for site in self.site_of]

    def kinds(self, phase: str) -> Kinds:
        """Masked uploads in place of the plain ones, and what masks need beside them."""
        sites, word = sorted(set(self.site_of)), torch.int64 if self.masking.bits == 64 else torch.int32
        size = self._sizes.get(phase, 0)
        found: dict[str, Kinds] = {
            phases.ENROL: {Enrolment: phases.enrolment()},
            phases.KEYS: {Preparation: phases.preparation(sites, 2 * self.masking.rounds_ahead)},
            phases.OPEN: {Opening: phases.opening(sites)},
            phases.SHARE: {MaskedUpload: {"words": Field(((size,),), word)}},
            phases.TRAIN: {MaskedUpload: {"words": Field(((size,),), word)}},
            phases.FINISH: {MaskedUpload: {"words": Field(((size,),), word)}},
        }
        return found.get(phase, {})

    def most_bytes(self, phase: str) -> int:
        """What the numbers of an upload take."""
        return self._sizes.get(phase, 0) * self.masking.bits // 8

    def state(self) -> dict[str, Any]:
        """The plain state, the name of the run, to which masks are bound, and sums that are not used up."""
        return {**super().state(), "run": self.run, "read": self._still_needed}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` returned."""
        self.run, self._read = state["run"], dict(state["read"])
        super().load({name: value for name, value in state.items() if name not in ("run", "read")})

    @property
    def _sizes(self) -> dict[str, int]:
        shared = self.vectors.size(self._columns.trains, self._columns.others.shape[1])
        models = ModelSum.size(self.server.model.num_weights)
        return {phases.SHARE: shared, phases.TRAIN: models, phases.FINISH: models}

    @property
    def _refuses(self) -> bool:
        return self.masking.single_neighbour == "refuse"

    def _check(self, contributing: Collection[str]) -> None:
        self.masking.quorum.threshold_of(len(contributing))
        check_neighbours(self._columns, contributing, self.masking.least, self.names, self.masking.single_neighbour)

    def _agree(self, t: int, ask: Ask, sites: Sequence[str]) -> None:
        """Who is there, with which keys, and for how many rounds; Ã is cut anew for those."""
        try:
            self._exchange_keys(t, ask, sites)
        except InputError as short:
            raise NotOpenedError(str(short)) from short

    def _exchange_keys(self, t: int, ask: Ask, sites: Sequence[str]) -> None:
        rounds = self.masking.rounds_ahead
        notes = {"run": self.run, "clients": self.server.num_clients, "sites": sorted(set(self.site_of))}
        replies, _ = ask(phases.ENROL, t, dict.fromkeys(sites, Outgoing(notes=notes)))
        roll = self._unmasker.roll(_one_each(Enrolment, replies))
        self._shares = {site: int(count) for site, count in roll.shares.items()}
        self.noise.require_enough(Ticket(self.run, t, phases.TRAIN), self._shares, self._shares)
        replies, _ = ask(phases.KEYS, t, dict.fromkeys(roll.identity, Outgoing([roll])))
        preparations = _one_each(Preparation, replies)
        rosters = self._unmasker.rosters(phases.tickets_from(self.run, t, rounds), preparations)
        self._columns = Columns.of(self._columns.others, self.server.votes, self.site_of, set(rosters))
        self._check(set(rosters))
        ask(
            phases.ROSTER,
            t,
            {site: Outgoing([roster, self._columns.of_site(site)]) for site, roster in rosters.items()},
        )
        self._until = t + rounds

    @property
    def _still_needed(self) -> dict[int, Tensor]:
        """The sums that were opened, of rounds that are not over."""
        return {t: numbers for t, numbers in self._read.items() if t >= self.server.round}

    def _models(self, t: int) -> ModelSum:
        like = next(iter(self.server.weights.values()))
        return ModelSum.read(self._read[t], self.server.model.shapes, like)

    def _total(self, ticket: Ticket, uploads: Mapping[str, Sequence[Message]], ask: Ask) -> tuple[Words, list[str]]:
        """The sum over the sites that uploaded, who are asked to open it."""
        masked = {site: one for site, sent in uploads.items() for one in sent if isinstance(one, MaskedUpload)}
        try:
            survivors = self._unmasker.survivors(ticket, masked)
            if ticket.phase == phases.TRAIN:
                self.noise.require_enough(ticket, self._shares, survivors)
            notes = {"phase": ticket.phase, "survivors": survivors}
            replies, _ = ask(phases.OPEN, ticket.round, dict.fromkeys(survivors, Outgoing(notes=notes)))
            return self._unmasker.total(ticket, masked, _one_each(Opening, replies)), survivors
        except InputError as short:
            raise NotOpenedError(str(short)) from short


def _evaluation(summed: ModelSum) -> Evaluation:
    return Evaluation(summed.scores.view(len(SPLITS), COLUMNS))


def _one_each(kind: type[M], replies: Mapping[str, Envelope]) -> dict[str, M]:
    """The one message of a kind of each site that sent one."""
    return {site: found[0] for site, reply in replies.items() if (found := reply.of(kind))}
