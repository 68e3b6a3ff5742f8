"""What a user calls the clients, samples and classes of a client graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gfl_lightning.graphs.client_graph import ClientGraph

Name = str | int | float | bool


@dataclass(frozen=True, eq=False)
class Names:
    """Names for the numbers in a client graph.

    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> KarateClub().names.classes
    range(0, 4)

    Args:
        clients: of each client ``[N]``.
        samples: of each sample ``[S]``, unique within its client.
        classes: of each class ``[c]``.
    """

    clients: Sequence[Name]
    samples: Sequence[Name]
    classes: Sequence[Name]

    @classmethod
    def of(cls, graph: ClientGraph) -> Names:
        """The numbers themselves, for a graph that has no names."""
        return cls(range(graph.num_clients), range(graph.num_samples), range(graph.num_classes))
