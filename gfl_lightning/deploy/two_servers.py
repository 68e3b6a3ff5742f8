"""The paper's two servers: one receives ĥ_j and the models, the other ∇ĥ_j, and neither sees both."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy import boxes
from gfl_lightning.deploy.aggregation import Ask, PlainAggregation
from gfl_lightning.deploy.boxes import SECOND, Box, Boxes, SecondKey, lock_numbers, unlock_numbers
from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.envelope import Envelope, Outgoing
from gfl_lightning.deploy.masking.contributions import SharedVectors, flattened
from gfl_lightning.deploy.masking.keys import AgreementKey, is_signed_by
from gfl_lightning.deploy.masking.messages import to_bytes, to_tensor
from gfl_lightning.deploy.phases import SHARE, TRAIN
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.site_party import Handler, SiteParty
from gfl_lightning.federated.protocol.messages import JacobianUpload, Message, RepresentationUpload
from gfl_lightning.models.encoders.encoder import Weights

SECOND_IDENTITY = "second.pub"


class SecondServerError(RuntimeError):
    """The second server has not answered; the rounds made so far are on disk."""


@dataclass(eq=False)
class TwoServers(PlainAggregation):
    """The first server: it forms C_k and W̄, and passes boxes between the sites and the second, which it cannot open.

    Args:
        server: does the sums.
        roster: which clients are at which site.
        release: whether uploads are dropped as soon as aggregates are sent; the second server follows the same plan.
    """

    roster: Roster
    release: bool = False
    run: str = field(default_factory=lambda: secrets.token_hex(16), init=False)
    _boxes: dict[str, Box] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require(SECOND not in self.roster.sites, "sites", f"not be named {SECOND}, as the second server is", SECOND)

    def prepare(self, t: int, ask: Ask, sites: Sequence[str]) -> None:
        """Tell the second server who trains and the sites its key."""
        encoder = self.server.model.encoder
        sizes = {"features": encoder.num_features, "classes": encoder.num_classes}
        notes = {"run": self.run, "votes": self.server.votes.tolist(), **sizes}
        reply = self._second(boxes.BEGIN, t, Outgoing(notes=notes), ask)
        key = reply.of(SecondKey)
        ask(boxes.KEY, t, {s: Outgoing(key, {"run": self.run, "training": self._training(s)}) for s in sites})

    def shared(self, t: int, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask) -> None:
        """Keep ĥ_j, pass ∇ĥ_j on, and take ∇C_k for the sites, both unread."""
        for message in (one for messages in uploads.values() for one in messages):
            if isinstance(message, RepresentationUpload):
                self.server.receive(message)
        sent = {site: box for site, messages in uploads.items() for box in messages if isinstance(box, Box)}
        passed = Boxes({site: one.public for site, one in sent.items()}, {site: one.box for site, one in sent.items()})
        (made,) = self._second(boxes.RELAY, t, Outgoing([passed]), ask).of(Boxes)
        self._boxes = {site: Box(made.public[site], box) for site, box in made.box.items()}

    def aggregates(self, t: int, site: str, clients: Sequence[int], training: Sequence[int]) -> list[Message]:
        """C_k of its clients, and the second server's box."""
        return [
            *self.server.representations(clients),
            *([self._boxes[site]] if training and site in self._boxes else []),
        ]

    def released(self) -> None:
        """Keep nothing of what was shared, if so asked."""
        self._boxes = {}
        if self.release:
            self.server.forget()

    def kinds(self, phase: str) -> Kinds:
        """Boxes in place of Jacobians, and the second server's answers."""
        counts = {site: len(clients) for site, clients in self.roster.sites.items()}
        training = {site: len(self._training(site)) for site in counts}
        found: dict[str, Kinds] = {
            SHARE: {Box: boxes.box_contents(counts.values(), self._vectors.gradient)},
            boxes.BEGIN: {SecondKey: boxes.key_contents()},
            boxes.RELAY: {
                Boxes: boxes.boxes_contents(training, self.server.model.aggregator.hops * self._vectors.gradient)
            },
        }
        return found.get(phase, {})

    def most_bytes(self, phase: str) -> int:
        """The second server answers for all sites at once."""
        size = self.server.model.aggregator.hops * self._vectors.gradient
        return boxes.box_bytes(self.server.num_clients, size) if phase == boxes.RELAY else 0

    @property
    def _vectors(self) -> SharedVectors:
        return SharedVectors(self.server.model, by_factors=False, compensated=True)

    def _training(self, site: str) -> list[int]:
        return [k for k in self.roster.numbers(site) if self.server.votes[k] > 0]

    def _second(self, phase: str, t: int, outgoing: Outgoing, ask: Ask) -> Envelope:
        replies, missing = ask(phase, t, {SECOND: outgoing})
        if SECOND not in replies:
            raise SecondServerError(f"the second server must answer {phase} of round {t}, got: {missing[SECOND]}.")
        return replies[SECOND]


class TwoServerSite(SiteParty):
    """A site that locks its clients' Jacobians for the second server.

    Args:
        inner: the site's clients.
        name: of the site.
        folder: ``second.pub`` in it, where there is one, holds the identity that the second server must have.
    """

    def __init__(self, inner: SiteParty, name: str, folder: Path) -> None:
        self.graph, self.numbers, self.own, self.model = inner.graph, inner.numbers, inner.own, inner.model
        self.clients, self._inner, self._name = inner.clients, inner, name
        known = folder / SECOND_IDENTITY
        self._trusted = known.read_bytes() if known.exists() else None
        self._vectors = SharedVectors(inner.model, by_factors=False, compensated=True)
        self._key = AgreementKey.new()
        self._second, self._run, self._training = b"", "", list[int]()

    def share(self, t: int, weights: Weights, sharing: Sequence[int]) -> list[Message]:
        """ĥ_j for the first server, ∇ĥ_j for the second."""
        require(bool(self._second), "phase", f"come after {boxes.KEY}", SHARE)
        uploads = self._inner.share(t, weights, sharing)
        names = self.model.encoder.shapes
        found = {one.client: flattened(one.jacobian, names) for one in uploads if isinstance(one, JacobianUpload)}
        purpose = boxes.context(self._run, t, self._name, boxes.UP)
        box = lock_numbers(self._key, self._second, purpose, found, sorted(self.numbers), self._vectors.gradient)
        return [
            *(one for one in uploads if isinstance(one, RepresentationUpload)),
            Box(to_tensor(self._key.public), box),
        ]

    def read(self, t: int, messages: Sequence[Message]) -> list[Message]:
        """∇C_k out of the second server's box."""
        return [one for message in messages for one in self._read(t, message)]

    def _read(self, t: int, message: Message) -> list[Message]:
        if not isinstance(message, Box):
            return [message]
        purpose, size = boxes.context(self._run, t, self._name, boxes.DOWN), self.own.shape[1] * self._vectors.gradient
        found = unlock_numbers(self._key, self._second, purpose, message.box, self._training, size)
        return [self._aggregate(k, flat) for k, flat in found.items()]

    def _aggregate(self, k: int, flat: Tensor) -> Message:
        _, aggregate = self._vectors.aggregates(
            k, self.own.new_zeros(self.own.shape[1], self._vectors.hidden), flat, self.own
        )
        return aggregate

    def train(
        self, t: int, weights: Weights, received: Sequence[Message], training: Sequence[int], lr: float
    ) -> list[Message]:
        """As the clients do."""
        return self._inner.train(t, weights, received, training, lr)

    def logits(self, weights: Weights, received: Sequence[Message]) -> Tensor:
        """As the clients predict."""
        return self._inner.logits(weights, received)

    def handlers(self) -> dict[str, Handler]:
        """The phase that brings the second server's key."""
        return {boxes.KEY: self._meet}

    def kinds(self, phase: str) -> Kinds:
        """The second server's key, and boxes in place of Jacobians."""
        size = self.own.shape[1] * self._vectors.gradient
        found: dict[str, Kinds] = {
            boxes.KEY: {SecondKey: boxes.key_contents()},
            TRAIN: {Box: boxes.box_contents([len(self._training)], size)},
        }
        return found.get(phase, {})

    def _meet(self, envelope: Envelope) -> tuple[list[Message], dict[str, Any]]:
        """Learn the key of the second server, which must be the one that is known of it."""
        (key,) = envelope.of(SecondKey)
        run, identity = str(envelope.notes["run"]), to_bytes(key.identity)
        text = boxes.context(run, 0, SECOND, "key") + to_bytes(key.public)
        if identity != (self._trusted or identity) or not is_signed_by(identity, to_bytes(key.signature), text):
            raise InputError("the second server must have the identity that is known of it, got another.")
        self._second, self._run = to_bytes(key.public), run
        self._training = sorted(int(k) for k in envelope.notes["training"])
        return [], {}
