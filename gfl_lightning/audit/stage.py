"""What all attacks of an audit are made from: who is who, the messages, and what is public."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.attacks.knowledge import Clients, Knowledge, OwnPlace
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.seeing import Seeing
from gfl_lightning.audit.subject import Subject
from gfl_lightning.federated.protocol.messages import JacobianAggregate, RepresentationAggregate
from gfl_lightning.graphs.client_graph import Split

ALONE = "its own record alone"
PUBLIC = "a tenth of the clients' records is public"
NAMED = f"{PUBLIC}, by name"
GRAPH = f"{PUBLIC}; the graph is known"
ALL = f"{NAMED}; the graph is known"
BRIEFLY = {
    ALONE: "knows nothing else",
    PUBLIC: "public records",
    GRAPH: "and the graph",
    ALL: "and the graph and names",
}
"""Side knowledge in a few words, which tell apart findings of one attack."""
PUBLIC_RECORDS = 300
COSTLY = 1e5
"""Numbers in a Jacobian, from which on drawing its noise is what an audit takes its time for."""


@dataclass(eq=False)
class Stage:
    """Everything that trials are made from.

    Args:
        subject: what is audited.
        cast: who is who, and the truth.
        seeing: the messages of the federation that was trained.
        scale: how many are attacked.
    """

    subject: Subject
    cast: Cast
    seeing: Seeing
    scale: Scale

    @property
    def large(self) -> bool:
        """Whether a Jacobian has many numbers."""
        encoder = self.seeing.federation.encoder
        return encoder.num_classes * sum(weight.numel() for weight in self.seeing.recording.final.values()) > COSTLY

    @property
    def costly(self) -> bool:
        """Whether every look at an upload draws the noise of a large Jacobian."""
        return self.large and self.seeing.federation.protection.jacobian.is_noisy

    def knowledge(self, client: int) -> Knowledge:
        """What is public, and what is known of a client besides."""
        graph, rows = self.cast.graph, self.cast.public_rows[:PUBLIC_RECORDS]
        y, samples = graph.y[rows].clamp_min(0), max(1, len(self.cast.shared(client)))
        program, disguise = self.seeing.program, self.disguise(client)
        return Knowledge(graph.x[rows], y, graph.num_classes, samples, client, program.std, program.bound, disguise)

    def disguise(self, client: int) -> float:
        """The deviation of randomised public records from what they were, of clients who train if this one does."""
        if self.subject.known_to_clients:
            return 0.0
        rows = self.public_rows_like(client)
        apart = self.seeing.federation.graph.x[rows][:, : self.cast.graph.num_features] - self.cast.graph.x[rows]
        return float(apart.square().mean().sqrt())

    def public_rows_like(self, client: int) -> Tensor:
        """Public records that are shared, of clients with labels in use if the client has such, or of any."""
        graph = self.cast.graph
        rows = graph.shared & torch.isin(graph.client, self.cast.public)
        used = graph.counts(graph.mask(Split.TRAIN) | graph.mask(Split.VAL)) > 0
        alike = rows & (used[graph.client] == used[client])
        return (alike if bool(alike.any()) else rows).nonzero().flatten()

    def place(self, client: int, knows: str) -> OwnPlace:
        """What a fellow client knows besides."""
        graph, known = self.cast.graph, self.knowledge(client)
        near, label = self.cast.neighbours(client), max(self.cast.label(client), 0)
        own_x = graph.x[graph.client == client]
        row = self.seeing.row(client)
        noise = {
            RepresentationAggregate: self.seeing.federation.protection.hidden,
            JacobianAggregate: self.seeing.federation.protection.jacobian,
        }
        std = {kind: part.spread * float(row.norm()) for kind, part in noise.items()}
        bound = {kind: part.clip for kind, part in noise.items() if part.is_bounded}
        public = self.cast.public[self.cast.public != client] if knows == ALL else self.cast.public[:0]
        public = torch.tensor([j for j in public.tolist() if len(self.cast.shared(j))], dtype=torch.int64)
        return OwnPlace(
            own_x if knows == ALONE else known.public_x,
            torch.full((len(own_x),), label) if knows == ALONE else known.public_y,
            known.num_classes,
            seed=client,
            std=std,
            bound=bound,
            disguise=known.disguise,
            own_x=own_x,
            own_label=label,
            neighbours=row[near] if knows in (GRAPH, ALL) else torch.empty(0),
            named=self.records_of(public),
            weights=row[public],
        )

    def records_of(self, clients: Tensor) -> Clients:
        """All that each client shares."""
        return Clients.of([self.cast.shared(j) for j in clients.tolist()]) if len(clients) else Clients()

    def mean_records(self, clients: Tensor) -> Tensor:
        """The mean record of each client ``[q, d]``."""
        return torch.stack([self.cast.shared(j).mean(0) for j in clients.tolist()])
