"""The samples as the round needs them: which are shared, by whom, and means over each client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.federated.exchange.features import Features
from gfl_lightning.graphs.client_graph import ClientGraph


@dataclass(frozen=True, eq=False)
class SampleTable:
    """S samples of N clients, of which Q enter the representations ĥ_j.

    ``shared [Q]`` are rows of the table, ``owner [Q]`` their clients and ``share [Q]`` = 1/n_j, n_j being the
    number of samples that client j shares.
    """

    graph: ClientGraph
    features: Features
    shared: Tensor
    owner: Tensor
    share: Tensor

    @classmethod
    def of(cls, graph: ClientGraph) -> SampleTable:
        """The table of a client graph."""
        shared = graph.shared.nonzero().flatten()
        owner = graph.client[shared]
        share = 1 / graph.counts(graph.shared)[owner].to(graph.x.dtype)
        return cls(graph, Features.of(graph.x), shared, owner, share)

    @cached_property
    def one_sample_each(self) -> bool:
        """Whether row j of the table is the only sample of client j, as in DNC."""
        return torch.equal(self.graph.client, torch.arange(self.graph.num_samples, device=self.graph.client.device))

    @cached_property
    def all_shared(self) -> bool:
        """Whether every sample enters its client's representation."""
        return len(self.shared) == self.graph.num_samples

    @cached_property
    def by_client(self) -> Ragged:
        """The shared samples arranged by client; every client has one, so K = N."""
        return Ragged.of(self.owner)

    @cached_property
    def even(self) -> bool:
        """Whether the shared samples stand in the order of their clients, equally many of each."""
        place = self.by_client.place.flatten()
        return torch.equal(place, torch.arange(len(self.shared), device=place.device))

    def shared_rows(self, values: Tensor) -> Tensor:
        """Rows of the shared samples, ``[S, m] → [Q, m]``."""
        return values if self.all_shared else values[self.shared]

    def shared_columns(self, positions: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Owner, share and row of the shared samples at some positions (``None``: all)."""
        columns = (self.owner, self.share, self.shared)
        return columns if positions is None else (columns[0][positions], columns[1][positions], columns[2][positions])

    def client_mean(self, values: Tensor, positions: Tensor | None = None) -> Tensor:
        """Mean over each client's shared samples, ``[Q, m] → [N, m]``.

        Where ``positions`` chooses some of the shared samples, clients without any get 0.
        """
        if self.one_sample_each and positions is None:
            return values
        if self.even and positions is None:
            return values.view(self.graph.num_clients, -1, values.shape[1]).mean(1)
        owner, share, _ = self.shared_columns(positions)
        return values.new_zeros(self.graph.num_clients, values.shape[1]).index_add_(0, owner, values * share[:, None])

    def spread(self, values: Tensor, weight: Tensor, positions: Tensor | None = None) -> Tensor:
        """values_j weight_q / n_j for each shared sample q of client j, ``[N, m], [Q, m] → [Q, m]``.

        ``positions`` chooses some of the shared samples, those that ``weight`` belongs to.
        """
        if self.even and positions is None:
            n = len(self.shared) // self.graph.num_clients
            return ((values / n)[:, None, :] * weight.view(-1, n, weight.shape[1])).view_as(weight)
        owner, share, _ = self.shared_columns(positions)
        return values[owner].mul_(weight).mul_(share[:, None])
