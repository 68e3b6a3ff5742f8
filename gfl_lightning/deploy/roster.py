"""Which clients are at which site, and who is connected to whom: what the server holds instead of data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.tables.edges import EdgeColumns, read_edges
from gfl_lightning.graphs.tables.problems import Problems


@dataclass(frozen=True)
class Roster:
    """The clients by site. Clients are numbered in the order of their names, as in a table of all of them.

    >>> Roster({"south": ("b",), "north": ("a", "c")}).numbers("north")
    [0, 2]

    Args:
        sites: names of the clients of each site.
    """

    sites: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        require(len(self.sites) >= 1, "sites", "name at least one site", dict(self.sites))
        for site, clients in self.sites.items():
            require(len(clients) >= 1, f"sites.{site}", "have at least one client", list(clients))
        every = [client for clients in self.sites.values() for client in clients]
        twice = sorted({client for client in every if every.count(client) > 1})
        require(not twice, "sites", "have every client once", twice)

    @cached_property
    def clients(self) -> list[str]:
        """All clients, ascending."""
        return sorted(client for clients in self.sites.values() for client in clients)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {client: number for number, client in enumerate(self.clients)}

    def numbers(self, site: str) -> list[int]:
        """Numbers of a site's clients, ascending."""
        return sorted(self._number[client] for client in self.sites[site])

    def number(self, client: str) -> int:
        """Number of a client."""
        return self._number[client]

    def state(self) -> dict[str, Any]:
        """Plain containers."""
        return {site: list(clients) for site, clients in self.sites.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Roster:
        """From what :meth:`state` returned."""
        return cls({site: tuple(map(str, clients)) for site, clients in state.items()})


def graph_without_data(roster: Roster, edges: str, columns: EdgeColumns, separator: str = ",") -> ClientGraph:
    """The graph of the clients from a file of edges; each stands there with one row that holds nothing."""
    problems = Problems()
    found = read_edges(edges, columns, roster.clients, "the sites", separator, problems)
    problems.refuse()
    N = len(roster.clients)
    return ClientGraph.from_edges(
        x=torch.zeros(N, 1),
        y=torch.full((N,), -1),
        client=torch.arange(N),
        split=torch.full((N,), int(Split.NONE), dtype=torch.int8),
        shared=torch.ones(N, dtype=torch.bool),
        edge_index=torch.from_numpy(found.index),
        num_classes=2,
        edge_weight=None if found.weight is None else torch.from_numpy(found.weight).float(),
    )
