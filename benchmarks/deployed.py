"""A federation of 8 sites in one process, every message through the codec: what masks cost beside plain sums."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch

from benchmarks.timing import in_turns
from gfl_lightning.deploy import phases
from gfl_lightning.deploy.aggregation import Aggregation, PlainAggregation
from gfl_lightning.deploy.batches import OwnBatches
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.envelope import SERVER, Envelope, Outgoing
from gfl_lightning.deploy.masking.aggregation import MaskedAggregation
from gfl_lightning.deploy.masking.contributions import SharedVectors
from gfl_lightning.deploy.masking.keys import AgreementKey
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.masking.site import MaskedSite
from gfl_lightning.deploy.masking.streams import add_streams
from gfl_lightning.deploy.rules import Rules
from gfl_lightning.deploy.site_party import PartyOptions, SiteParty
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import Message, ModelBroadcast
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.propagation import propagation
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model

SITES, FEATURES, CLASSES = 8, 1433, 7
LOCAL = LocalTraining(lr=0.1, steps=10)
PROTOCOLS: tuple[ProtocolName, ...] = ("jacobian", "gram")
MOST = 2**31


@dataclass(eq=False)
class InOneProcess:
    """8 sites with one client each, as large as subCora's, all of which train."""

    protocol: ProtocolName
    masking: Masking
    t: int = 0
    parties: dict[str, SiteParty] = field(default_factory=dict)
    sums: Aggregation = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        model = Model(SizedEncoder(MLP(), FEATURES, CLASSES), APPNP())
        ring = torch.stack([torch.arange(SITES), (torch.arange(SITES) + 1) % SITES])
        graph = one_sample_each(torch.randn(SITES, FEATURES, generator=generator).clamp_min(0), ring)
        A = propagation(graph, model.aggregator.gamma)
        server = ServerParty(A, model, model.initial_weights(generator), torch.full((SITES,), 1 / SITES))
        vectors, names = SharedVectors(model, by_factors=True, compensated=True), [f"site{k}" for k in range(SITES)]
        options = PartyOptions(model, LOCAL, self.protocol)
        for k, name in enumerate(names):
            own = one_sample_each(graph.x[k : k + 1], torch.empty(2, 0, dtype=torch.int64))
            batches = OwnBatches({k: k}, {k: 1}, SITES, 1, LOCAL, 0)
            party = SiteParty(own, [k], server.own[k : k + 1], options, batches)
            folder = Path(mkdtemp())
            self.parties[name] = MaskedSite(party, self.masking, vectors, name, folder) if self.masking.on else party
        plain = PlainAggregation(server)
        self.sums = MaskedAggregation(server, self.masking, vectors, names, names) if self.masking.on else plain
        self.sums.prepare(0, self.ask, names)
        self.share()

    def share(self) -> None:
        """Step 3."""
        broadcast = self.sums.server.broadcast()
        sent = {name: Outgoing([broadcast], {"sharing": list(party.numbers)}) for name, party in self.parties.items()}
        replies, _ = self.ask(phases.SHARE, self.t, sent)
        self.sums.shared(self.t, {site: reply.messages for site, reply in replies.items()}, (), self.ask)

    def round(self) -> None:
        """Steps 1 to 3."""
        sent = {}
        for name, party in self.parties.items():
            messages = self.sums.aggregates(self.t, name, party.numbers, party.numbers)
            sent[name] = Outgoing(messages, {"training": list(party.numbers)})
        replies, _ = self.ask(phases.TRAIN, self.t, sent)
        self.sums.released()
        uploads = {site: reply.messages for site, reply in replies.items()}
        self.sums.settled(self.t, uploads, self.ask)
        self.sums.averaged(self.t, LOCAL.lr, uploads, (), self.ask)
        self.t += 1
        self.share()

    def ask(self, phase: str, t: int, outgoing: Mapping[str, Outgoing]) -> tuple[dict[str, Envelope], dict[str, str]]:
        """Every envelope as a blob, and its answer."""
        model, replies = self.sums.server.model, {}
        for name, sent in outgoing.items():
            party = self.parties[name]
            kinds = {**phases.kinds_down(phase, model, self.protocol), **party.kinds(phase)}
            blob = encode(Envelope(phase, t, SERVER, tuple(sent.messages), sent.notes))
            asked = decode(blob, Rules(SERVER, phase, t, kinds, frozenset(party.numbers), MOST))
            answer = encode(Envelope(phase, t, name, tuple(self._answer(party, asked)), {}))
            kinds = {**phases.kinds_up(phase, model, self.protocol), **self.sums.kinds(phase)}
            replies[name] = decode(answer, Rules(name, phase, t, kinds, frozenset(party.numbers), MOST))
        return replies, {}

    def _answer(self, party: SiteParty, asked: Envelope) -> Sequence[Message]:
        weights = self.sums.server.weights
        if asked.phase == phases.SHARE:
            (broadcast,) = asked.of(ModelBroadcast)
            return party.share(asked.round, broadcast.weights, asked.notes["sharing"])
        if asked.phase == phases.TRAIN:
            received = party.read(asked.round, asked.messages)
            models = party.train(asked.round, weights, received, asked.notes["training"], LOCAL.lr)
            return party.sent(asked.round, models, [])
        return party.handlers()[asked.phase](asked)[0]


def one_sample_each(x: torch.Tensor, edges: torch.Tensor) -> ClientGraph:
    """Clients with one training sample each."""
    n = len(x)
    return ClientGraph.from_edges(
        x=x,
        y=torch.arange(n) % CLASSES,
        client=torch.arange(n),
        split=torch.full((n,), int(Split.TRAIN), dtype=torch.int8),
        shared=torch.ones(n, dtype=torch.bool),
        edge_index=edges,
        num_classes=CLASSES,
    )


def milliseconds(run: Callable[[], object], times: int) -> float:
    """The least time of one call."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return 1000 * min(found)


def measure() -> dict[str, float]:
    """What keys and masks cost, and masked rounds over plain ones of the same protocol."""
    one, other, words = AgreementKey.new(), AgreementKey.new().public, np.zeros(645_000, dtype="<u8")
    found = {}
    for protocol in PROTOCOLS:
        plain, masked = InOneProcess(protocol, Masking()), InOneProcess(protocol, Masking(on=True))
        without, with_masks = in_turns(plain.round, masked.round, repeats=9, warm_up=1)
        print(f"8 sites in one process, {protocol}: plain {1000 * without:.0f} ms, masked {1000 * with_masks:.0f} ms")
        found[f"masked_{protocol}"] = with_masks / without
    return {
        "mask_pair_ms": milliseconds(lambda: one.agree(other, b"benchmark"), 50),
        "mask_645k_ms": milliseconds(lambda: add_streams(words, [bytes(32)]), 20),
        **found,
    }
