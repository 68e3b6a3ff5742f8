"""The contract of a network's options: they build the network once the sizes of the data are known."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from gfl_lightning.baselines.networks.graph_net import GraphNet
from gfl_lightning.checks import require_count

WIDEST = 100_000
"""Width of a hidden layer that is surely a mistake beyond."""


class Architecture(ABC):
    """What a centralised network is, before there are data. A subclass is a frozen dataclass of its options.

    >>> from gfl_lightning.baselines.networks.gcn import GCN
    >>> isinstance(GCN(hidden=16), Architecture)
    True
    """

    @abstractmethod
    def build(self, num_features: int, num_classes: int, generator: torch.Generator) -> GraphNet:
        """A network for d features and c classes whose initial weights ``generator`` alone determines."""


def require_sizes(num_features: int, num_classes: int) -> None:
    """Refuse sizes that no data have."""
    require_count("num_features", num_features)
    require_count("num_classes", num_classes, least=1)
