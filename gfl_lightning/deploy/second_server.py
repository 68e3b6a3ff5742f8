"""The second of two servers: it receives ∇ĥ_j, forms ∇C_k, and sees neither ĥ_j nor any model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.deploy import boxes
from gfl_lightning.deploy.boxes import SECOND, Boxes, SecondKey, lock_numbers, unlock_numbers
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.envelope import SERVER, Envelope
from gfl_lightning.deploy.masking.contributions import flattened
from gfl_lightning.deploy.masking.keys import AgreementKey, Identity
from gfl_lightning.deploy.masking.messages import to_bytes, to_tensor
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.rules import Rules
from gfl_lightning.deploy.site import PROBLEM
from gfl_lightning.federated.protocol.messages import JacobianAggregate, JacobianUpload, Message
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import propagation

log = logging.getLogger(__name__)


class SecondServer:
    """Answers the first server's blobs; what sites lock for it passes through the first unread.

    Args:
        plan: what is done.
        roster: which clients are at which site.
        graph: of the clients, without data.
        folder: where its identity is kept.
    """

    def __init__(self, plan: Plan, roster: Roster, graph: ClientGraph, folder: Path) -> None:
        require(plan.topology == "two_servers", "topology", "be two_servers for a second server", plan.topology)
        require(SECOND not in roster.sites, "sites", f"not be named {SECOND}, as the second server is", SECOND)
        self.plan, self.roster, self.graph = plan, roster, graph
        self._identity, self._key = Identity.kept_in(folder / "identity.key"), AgreementKey.new()
        self._run, self._public = "", dict[str, bytes]()
        self._sums: ServerParty | None = None

    @property
    def identity(self) -> bytes:
        """What sites may know it by."""
        return self._identity.public

    def answer(self, phase: str, blob: bytes) -> bytes:
        """The reply to a phase."""
        t, messages = 0, list[Message]()
        try:
            envelope = decode(blob, self._rules(phase))
            t = envelope.round
            messages = self._begin(envelope.notes) if phase == boxes.BEGIN else self._relay(envelope)
            return encode(Envelope(phase, t, SECOND, tuple(messages), {}))
        except InputError as mistake:
            log.error("second server, phase %s: %s", phase, mistake)
            said = f"{type(mistake).__name__} in phase {phase}; the second server's log says more"
            return encode(Envelope(phase, t, SECOND, (), {PROBLEM: said}))

    def _rules(self, phase: str) -> Rules:
        require(phase in (boxes.BEGIN, boxes.RELAY), "phase", "be one of the second server's", phase)
        if phase == boxes.BEGIN or self._sums is None:
            return Rules(SERVER, phase, None, {}, frozenset(), 2**22)
        counts = {site: len(clients) for site, clients in self.roster.sites.items()}
        contents = boxes.boxes_contents(counts, self._size)
        most = 2**22 + sum(boxes.box_bytes(count, self._size) for count in counts.values())
        return Rules(SERVER, phase, None, {Boxes: contents}, frozenset(), most)

    def _begin(self, notes: Mapping[str, Any]) -> list[Message]:
        """Ã of the graph, sizes of the model, and who trains; uploads of a run that goes on are shared anew."""
        self._run = str(notes["run"])
        model = self.plan.model(int(notes["features"]), int(notes["classes"]))
        nothing = {name: torch.zeros(shape) for name, shape in model.shapes.items()}
        A = propagation(self.graph, self.plan.aggregator.gamma)
        self._sums = ServerParty(A, model, nothing, torch.tensor(notes["votes"]))
        public = self._key.public
        signature = self._identity.sign(boxes.context(self._run, 0, SECOND, "key") + public)
        return [SecondKey(to_tensor(self.identity), to_tensor(public), to_tensor(signature))]

    def _relay(self, envelope: Envelope) -> list[Message]:
        """∇C_k of every client that trains, locked for its site."""
        require(self._sums is not None, "phase", f"come after {boxes.BEGIN}", envelope.phase)
        assert self._sums is not None
        (sent,) = envelope.of(Boxes)
        self._sums.round = envelope.round
        for site, box in sent.box.items():
            try:
                self._receive(site, to_bytes(sent.public[site]), box, envelope.round)
            except InputError as broken:  # one site's mistake must not stop the others
                log.error("second server, round %s: %s is absent: %s", envelope.round, site, broken)
        made = {}
        for site, public in self._public.items():
            who = [k for k in self.roster.numbers(site) if self._sums.votes[k] > 0]
            purpose = boxes.context(self._run, envelope.round, site, boxes.DOWN)
            if who:
                numbers, size = self._mixed(who), self._hops * self._size
                made[site] = lock_numbers(self._key, public, purpose, numbers, who, size)
        if self.plan.release:
            self._sums.forget()
        return [Boxes({site: to_tensor(self._public[site]) for site in made}, made)]

    def _receive(self, site: str, public: bytes, box: Tensor, t: int) -> None:
        assert self._sums is not None
        purpose = boxes.context(self._run, t, site, boxes.UP)
        found = unlock_numbers(self._key, public, purpose, box, self.roster.numbers(site), self._size)
        self._public[site] = public
        shapes, c = self._sums.model.encoder.shapes, self._sums.model.encoder.num_classes
        sizes = [c * torch.Size(shape).numel() for shape in shapes.values()]
        for k, flat in found.items():
            parts = zip(shapes.items(), flat.split(sizes), strict=True)
            self._sums.receive(JacobianUpload(k, {name: part.view(c, *shape) for (name, shape), part in parts}))

    def _mixed(self, clients: Sequence[int]) -> dict[int, Tensor]:
        assert self._sums is not None
        messages, shapes = self._sums.jacobians(clients), self._sums.model.encoder.shapes
        return {one.client: self._flat(one, shapes) for one in messages if isinstance(one, JacobianAggregate)}

    def _flat(self, one: JacobianAggregate, shapes: Mapping[str, tuple[int, ...]]) -> Tensor:
        """Hop by hop, each weight after the other."""
        hops = [
            {name: part.reshape(self._hops, -1)[hop] for name, part in one.grad_C.items()} for hop in range(self._hops)
        ]
        return torch.cat([flattened(hop, shapes) for hop in hops])

    @property
    def _hops(self) -> int:
        assert self._sums is not None
        return self._sums.model.aggregator.hops

    @property
    def _size(self) -> int:
        assert self._sums is not None
        return self._sums.model.encoder.num_classes * self._sums.model.encoder.num_weights
