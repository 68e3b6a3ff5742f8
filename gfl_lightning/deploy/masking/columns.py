"""Who contributes how much to whom: the server's knowledge of Ã, cut into what each site must know of it.

The server tells a site the column Ã_kj of each of its clients j, over rows k that bear no names and stand in a random
order; the site knows which rows are its own clients'. So it learns how strongly its clients count for nameless others,
and Ã between its own clients; never who the others are.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require, require_choice
from gfl_lightning.federated.protocol.messages import Message

NEGLIGIBLE = 1e-3
SingleNeighbour = Literal["refuse", "warn"]


@dataclass(frozen=True, eq=False)
class SiteColumns(Message):
    """Server to site, before the first masked sum: what its clients contribute to each row.

    >>> rows = torch.zeros(5, 1, 2)
    >>> SiteColumns(rows, torch.zeros(5, dtype=torch.bool), torch.tensor([3, 0]), torch.ones(2)).hops
    1

    Args:
        coefficients: Ã_kj, or (P^l)_kj of each hop, of the site's clients j ``[rows, L, clients]``; 0 where j = k.
        trains: the rows that need ∇C_k too ``[rows]``.
        mine: the row of each of the site's clients ``[clients]``.
        votes: the weight of each of them in the average ``[clients]``.
    """

    coefficients: Tensor
    trains: Tensor
    mine: Tensor
    votes: Tensor

    def __post_init__(self) -> None:
        rows, _, clients = self.coefficients.shape
        size = float(self.coefficients.abs().max()) if self.coefficients.numel() else 0.0
        require(size <= 1, "coefficients", "lie in [-1, 1]", size)
        inside = bool(((self.mine >= 0) & (self.mine < rows)).all()) and len(self.mine.unique()) == clients
        require(inside, "mine", f"be {clients} of {rows} rows", self.mine.tolist())
        require(bool((self.votes >= 0).all()), "votes", "be at least 0", self.votes.tolist())

    @property
    def hops(self) -> int:
        """L."""
        return self.coefficients.shape[1]


@dataclass(frozen=True, eq=False)
class Columns:
    """Ã cut by sites, over rows in a random order; a row is 0 where its receiver's site does not take part.

    >>> A = torch.tensor([[0.0, 0.3, 0.2], [0.3, 0.0, 0.1], [0.2, 0.1, 0.0]])[:, None]
    >>> columns = Columns.of(A, torch.tensor([0.5, 0.0, 0.5]), ["a", "b", "c"], ("a", "b", "c"))
    >>> columns.of_site("b").coefficients.shape, columns.of_site("b").mine.shape
    (torch.Size([3, 1, 1]), torch.Size([1]))

    Args:
        others: Ã_kj, or (P^l)_kj of each hop, with 0 where j = k ``[N, L, N]``.
        votes: the weight of each client in the average, 0 where it does not train ``[N]``.
        site_of: the site of each client.
        sites: those that take part.
        receivers: the client of each row ``[N]``.
    """

    others: Tensor
    votes: Tensor
    site_of: Sequence[str]
    sites: frozenset[str]
    receivers: tuple[int, ...]

    @classmethod
    def of(cls, others: Tensor, votes: Tensor, site_of: Sequence[str], sites: Collection[str]) -> Columns:
        """Rows in an order that the operating system draws."""
        receivers = list(range(len(site_of)))
        secrets.SystemRandom().shuffle(receivers)
        return cls(others, votes, site_of, frozenset(sites), tuple(receivers))

    def clients_of(self, site: str) -> list[int]:
        """The clients of a site, ascending."""
        return [k for k, owner in enumerate(self.site_of) if owner == site]

    def rows_of(self, site: str) -> list[int]:
        """The row of each of them."""
        place = {k: row for row, k in enumerate(self.receivers)}
        return [place[k] for k in self.clients_of(site)]

    @property
    def trains(self) -> Tensor:
        """The rows of clients that train ``[N]``."""
        return self.votes[list(self.receivers)] > 0

    def of_site(self, site: str) -> SiteColumns:
        """What a site is told."""
        clients = self.clients_of(site)
        takes_part = torch.tensor([self.site_of[k] in self.sites for k in self.receivers])
        coefficients = self.others[list(self.receivers)][:, :, clients].double() * takes_part[:, None, None]
        return SiteColumns(coefficients, self.trains, torch.tensor(self.rows_of(site)), self.votes[clients].double())

    def exposed(self, contributing: Collection[str], least: int) -> dict[int, list[str]]:
        """Receivers whose sum holds too few sites beside their own to hide any, with those it holds.

        A site counts if it has at least a thousandth of the receiver's weights.
        """
        counts = [site for site in sorted(set(self.site_of)) if site in contributing]
        found = {}
        for k in sorted(k for k in self.receivers if self.site_of[k] in self.sites):
            weight = self.others[k].abs().sum(0)
            by_site = {
                site: float(weight[list(self.clients_of(site))].sum()) for site in counts if site != self.site_of[k]
            }
            floor = NEGLIGIBLE * sum(by_site.values())
            holds = [site for site, share in by_site.items() if share > floor]
            if 0 < len(holds) < least:
                found[k] = holds
        return found


def check_neighbours(
    columns: Columns, contributing: Collection[str], least: int, names: Sequence[str], rule: SingleNeighbour
) -> None:
    """Refuse, or warn of, receivers whose aggregate would be what one other site sent, by their names."""
    require_choice("single_neighbour", rule, ("refuse", "warn"))
    exposed = columns.exposed(contributing, least)
    if not exposed:
        return
    whom = "; ".join(
        f"{names[k]} of {columns.site_of[k]} hears of {' and '.join(sites)} alone" for k, sites in exposed.items()
    )
    text = (
        f"each receiver must hear of {least} sites beside its own, as its aggregate is else what one sent, got: {whom}."
    )
    if rule == "refuse":
        raise InputError(text)
    warnings.warn(text, stacklevel=2)


def by_site(values: Mapping[int, Tensor], clients: Sequence[int], size: int) -> Tensor:
    """The vectors of a site's clients stacked ``[clients, size]``, 0 for those that sent none."""
    empty = torch.zeros(size, dtype=torch.float64)
    return torch.stack([values[k].double() if k in values else empty for k in clients])
