"""What a checkpoint keeps of the network that its model was trained on, so that new rows can be scored alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.graphs.tables.edges import Edges
from gfl_lightning.graphs.tables.encoding import Levels
from gfl_lightning.graphs.tables.features import Feature
from gfl_lightning.graphs.tables.neighbours import Profiles


@dataclass(frozen=True, eq=False)
class KeptNetwork:
    """Names and edges of the clients that trained, and what else places a new one among them.

    Args:
        clients: their names.
        edge_index: their edges in both directions ``[2, edges]``.
        edge_weight: weights of these; ``None`` means 1.
        profiles: where they stand, if edges were made of that.
        levels: what each standardises its own rows by, if each does; in a deployment this stays at the clients.
    """

    clients: Sequence[str]
    edge_index: Tensor
    edge_weight: Tensor | None
    profiles: Profiles | None
    levels: Levels | None

    @classmethod
    def of(
        cls, graph: ClientGraph, clients: Sequence[str], profiles: Profiles | None, levels: Levels | None
    ) -> KeptNetwork:
        """What is kept of a graph."""
        return cls(clients, graph.edge_index, graph.edge_weight, profiles, levels)

    def numbers_of(self, clients: Sequence[str]) -> Index:
        """The numbers of clients by their names; −1 for those that are not in the network."""
        place = {name: number for number, name in enumerate(self.clients)}
        return np.array([place.get(name, -1) for name in clients], dtype=np.int64)

    def edges_among(self, clients: Sequence[str]) -> Edges:
        """The network's edges between some clients."""
        here = np.full(len(self.clients), -1)
        known = self.numbers_of(clients)
        here[known[known >= 0]] = np.flatnonzero(known >= 0)
        ends = here[self.edge_index.numpy()]
        inside = (ends >= 0).all(0)
        weight = None if self.edge_weight is None else self.edge_weight.double().numpy()[inside]
        return Edges(ends[:, inside], weight)

    def placement(self, clients: Sequence[str], edges: Edges) -> tuple[Placement, str | None]:
        """Where ``clients`` stand, and a sentence on edges between two new ones, which tell nothing.

        ``edges`` are between names of ``clients`` and, numbered after them, :meth:`others` of the network.
        """
        from torch_geometric.utils import coalesce  # noqa: PLC0415  # seconds of imports

        N = len(clients)
        known = self.numbers_of([*clients, *self.others(clients)])
        one, other = edges.index
        weight = np.ones(len(one)) if edges.weight is None else edges.weight
        between = (known[one] < 0) & (known[other] < 0) & (one != other)
        out, back = (known[one] < 0) & (known[other] >= 0), (known[other] < 0) & (known[one] >= 0)
        source, target = np.r_[one[out], other[back]], known[np.r_[other[out], one[back]]]
        pairs = torch.from_numpy(np.stack([source, target]))
        weights = torch.from_numpy(np.r_[weight[out], weight[back]]).float()
        links, weights = coalesce(pairs, weights, max(N, len(self.clients)), reduce="mean")
        shape = (len(self.clients), self.edge_index, self.edge_weight)
        sentence = (
            f"{int(between.sum())} edges between two new clients are left out, as neither has shared anything yet."
        )
        placed = Placement(*shape, torch.from_numpy(known[:N]), links, weights)
        return placed, sentence if between.any() else None

    def nearest_links(self, clients: Sequence[str], near: Sequence[Feature]) -> Edges:
        """Edges from new clients to the nearest of the network, numbered as :meth:`placement` wants it."""
        assert self.profiles is not None
        new = np.flatnonzero(self.numbers_of(clients) < 0)
        nearest = self.profiles.nearest_to(self.profiles.points_of(near)[new])
        names = {name: number for number, name in enumerate([*clients, *self.others(clients)])}
        number = np.array([names[name] for name in self.clients])
        return Edges(np.stack([np.repeat(new, nearest.shape[1]), number[nearest.ravel()]]), None)

    def others(self, clients: Sequence[str]) -> list[str]:
        """The clients of the network that are not among some."""
        here = set(clients)
        return [name for name in self.clients if name not in here]

    def levels_for(self, clients: Sequence[str], found: Levels | None) -> Levels | None:
        """What ``clients`` standardise by: what was kept, and for new ones what their rows at hand say."""
        if found is None or self.levels is None:
            return found
        known = self.numbers_of(clients)
        old = (known >= 0)[:, None]
        return {name: np.where(old, self.levels[name][known], own) for name, own in found.items()}

    def state(self) -> dict[str, Any]:
        """Plain containers, as a checkpoint holds them; edges once, in 32 bits."""
        once = self.edge_index[0] < self.edge_index[1]
        levels = self.levels
        return {
            "clients": list(self.clients),
            "edges": self.edge_index[:, once].int(),
            "weights": None if self.edge_weight is None else self.edge_weight[once],
            "profiles": None if self.profiles is None else self.profiles.state(),
            "levels": None if levels is None else {name: torch.from_numpy(level) for name, level in levels.items()},
        }

    @classmethod
    def from_state(cls, state: Any, argument: str) -> KeptNetwork:
        """From what :meth:`state` returned; anything else is refused."""
        try:
            clients, once, weight = [str(name) for name in state["clients"]], state["edges"].long(), state["weights"]
            inside = once.ndim == 2 and once.shape[0] == 2 and bool(((once >= 0) & (once < len(clients))).all())
            require(inside, "edges", f"be pairs of the {len(clients)} clients", tuple(once.shape))
            profiles = None if state["profiles"] is None else Profiles.from_state(state["profiles"])
            levels = state["levels"]
            own = None if levels is None else {str(name): level.double().numpy() for name, level in levels.items()}
            both = torch.cat([once, once.flip(0)], 1)
            return cls(clients, both, None if weight is None else torch.cat([weight, weight]), profiles, own)
        except (InputError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as broken:
            raise InputError(f"{argument} must hold the network of a model, got {broken}.") from broken
