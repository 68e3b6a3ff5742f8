"""Graph federated learning with hidden representation sharing on PyTorch Lightning.

What most programs need is here by name; it is imported when it is first asked for, so that help comes at once.

>>> from gfl_lightning import DNC, Federation
>>> Federation(DNC(num_clients=50).graph).start().round
0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfl_lightning.federated.federation import Federation
    from gfl_lightning.graphs.datasets.dnc import DNC
    from gfl_lightning.lit.gfl import GFL
    from gfl_lightning.lit.rounds import FederatedTrainer

__all__ = ["DNC", "GFL", "FederatedTrainer", "Federation"]

_HOMES = {
    "DNC": "gfl_lightning.graphs.datasets.dnc",
    "GFL": "gfl_lightning.lit.gfl",
    "FederatedTrainer": "gfl_lightning.lit.rounds",
    "Federation": "gfl_lightning.federated.federation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
