"""Where the clients of a graph stand in the network that a model was trained on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Placement:
    """The network of K clients that a model was trained on, and how each of the N clients at hand belongs to it.

    A client of that network is scored where it stood. A new one is scored as if it joined alone, by its links.

    >>> import torch
    >>> pair = torch.tensor([[0, 1], [1, 0]])
    >>> place = Placement(2, pair, None, torch.tensor([1, -1]), torch.tensor([[1], [0]]), torch.ones(1))
    >>> place.new.tolist()
    [1]

    Args:
        size: K.
        edge_index: the network's edges in both directions ``[2, edges]``.
        edge_weight: their weights; ``None`` means 1.
        known: number in the network of each client at hand ``[N]``; −1 where it is new.
        links: edges of new clients ``[2, links]``: number of the client at hand, number in the network; no pair twice.
        link_weight: their weights ``[links]``.
    """

    size: int
    edge_index: Tensor
    edge_weight: Tensor | None
    known: Tensor
    links: Tensor
    link_weight: Tensor

    @property
    def new(self) -> Tensor:
        """The clients at hand that are not in the network."""
        return (self.known < 0).nonzero().flatten()

    @property
    def knows_anyone(self) -> bool:
        """Whether some client at hand is in the network or linked to it."""
        return bool((self.known >= 0).any()) or self.links.shape[1] > 0
