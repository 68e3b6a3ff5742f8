"""Types of fixtures."""

from __future__ import annotations

from collections.abc import Callable

from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer

Fit = Callable[..., tuple[FederatedTrainer, GFL]]
