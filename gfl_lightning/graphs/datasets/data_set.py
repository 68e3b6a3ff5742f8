"""The contract of data sets: a recipe that makes one client graph, and can be drawn again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.placement import Placement
from gfl_lightning.parts import OPTIONS, describe


class DataSet(ABC):
    """A client graph by its recipe, made once when first asked for.

    A subclass is a frozen dataclass of its options, which it checks on construction, before any work.

    >>> import torch
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Path(DataSet):
    ...     length: int = 3
    ...
    ...     def make(self) -> ClientGraph:
    ...         one = torch.arange(self.length)
    ...         return ClientGraph.from_edges(
    ...             x=one[:, None].float(), y=one % 2, client=one, split=one % 3, shared=one >= 0,
    ...             edge_index=torch.stack([one[:-1], one[1:]]), num_classes=2,
    ...         )
    >>> path = Path(length=4)
    >>> path.graph.num_edges, path.graph is path.graph, path.repeated(1) is path
    (3, True, True)
    """

    files: ClassVar[tuple[str, ...]] = ()
    """Options that name files of this machine, or how a command reads them: a checkpoint keeps the others."""

    @abstractmethod
    def make(self) -> ClientGraph:
        """Draw or read the graph; the same options give the same bits."""

    @cached_property
    def graph(self) -> ClientGraph:
        """The client graph."""
        return self.make()

    @property
    def names(self) -> Names:
        """What the user calls its clients, samples and classes: their numbers, unless the data have names."""
        return Names.of(self.graph)

    @property
    def placement(self) -> Placement | None:
        """Where its clients stand in the network that a model was trained on; ``None``: it is a network of its own."""
        return None

    @property
    def statistics(self) -> tuple[str, ...]:
        """What clients tell of their data before the first round, without noise: an account says ε = ∞ and names it."""
        return ()

    @property
    def feature_columns(self) -> dict[str, slice]:
        """Columns of the features by the user's names for them; nothing where features have no names."""
        return {}

    @property
    def missing_cells(self) -> dict[str, int]:
        """How many cells of each feature are missing, by the user's names; nothing where nobody counted."""
        return {}

    def repeated(self, repetition: int) -> DataSet:
        """Draw number ``repetition`` of the same recipe; itself where nothing is drawn anew."""
        return self

    def described(self) -> dict[str, Any] | None:
        """The class and its options as plain data, without files; ``None`` where they are no plain data."""
        try:
            whole: dict[str, Any] = describe(self)
        except InputError:
            return None
        return whole | {OPTIONS: {name: value for name, value in whole[OPTIONS].items() if name not in self.files}}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the data, in plain containers: what its model must know to read other data."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:  # noqa: B027  # nothing to refuse
        """Refuse the state of a checkpoint whose model reads its data in another way."""

    def require_clients(self, state_dict: Mapping[str, Any]) -> None:  # noqa: B027  # nothing to refuse
        """Refuse the state of a checkpoint of other clients; asked where every client has a model of its own."""
