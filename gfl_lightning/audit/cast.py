"""Who is who in an audit: clients whose records are public, clients under attack, and clients that attack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.graphs.client_graph import ClientGraph, Split

PUBLIC_SHARE, LEAST_PUBLIC = 0.1, 5


@dataclass(frozen=True)
class Scale:
    """How much of a federation an audit attacks.

    >>> Scale(victims=10).fellows
    10

    Args:
        victims: clients that the server attacks, of each kind of attack.
        fellows: training clients that attack their neighbours.
        shadows: federations that an outsider trains; fewer than 4 mean that it does not.
        noisy_rounds: rounds that are looked at where every look draws the noise of a whole Jacobian; half as many
            clients are attacked there.
    """

    victims: int = 40
    fellows: int = 10
    shadows: int = 12
    noisy_rounds: int = 32

    def __post_init__(self) -> None:
        for name in ("victims", "fellows", "noisy_rounds"):
            require_count(name, getattr(self, name))
        require_count("shadows", self.shadows, least=0)


@dataclass(frozen=True, eq=False)
class Cast:
    """Clients by their part.

    Args:
        graph: the true records.
        public: a tenth of the clients, whose names, records and labels everybody knows; they are not attacked.
        order: all others, in a random order.
    """

    graph: ClientGraph
    public: Tensor
    order: list[int]

    @classmethod
    def of(cls, graph: ClientGraph, seed: int) -> Cast:
        """Drawn by a seed."""
        N = graph.num_clients
        count = max(LEAST_PUBLIC, round(PUBLIC_SHARE * N))
        require(count < N, "graph", f"have more than {LEAST_PUBLIC} clients for an audit", graph)
        drawn = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
        return cls(graph, drawn[:count].sort().values, drawn[count:].tolist())

    @property
    def public_rows(self) -> Tensor:
        """The public records, labelled ones if there are any."""
        mine = torch.isin(self.graph.client, self.public)
        labelled = mine & (self.graph.y >= 0)
        return (labelled if bool(labelled.any()) else mine).nonzero().flatten()

    def shared(self, client: int) -> Tensor:
        """The records that a client shares the mean of ``[n, d]``."""
        return self.graph.x[(self.graph.client == client) & self.graph.shared]

    def training(self, client: int) -> Tensor:
        """Rows of a client's training samples."""
        return ((self.graph.client == client) & self.graph.mask(Split.TRAIN)).nonzero().flatten()

    def label(self, client: int) -> int:
        """The most frequent label of a client's samples; −1 where none has one."""
        y = self.graph.y[(self.graph.client == client) & (self.graph.y >= 0)]
        return int(y.mode().values) if len(y) else -1

    def neighbours(self, client: int) -> Tensor:
        """Its direct neighbours."""
        source, target = self.graph.edge_index
        return target[source == client]

    def victims(self, most: int) -> list[int]:
        """Clients under attack."""
        return self.order[:most]

    def training_victims(self, most: int) -> list[int]:
        """Training clients under attack."""
        train = set(self.graph.training_clients.tolist())
        return [client for client in self.order if client in train][:most]

    def fellows(self, most: int) -> list[int]:
        """Training clients that have a neighbour."""
        return [client for client in self.training_victims(len(self.order)) if len(self.neighbours(client))][:most]
