"""What a guarantee claims: for whom, against what, how it is counted and how much of it may be spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gfl_lightning.checks import require, require_choice
from gfl_lightning.privacy.accounting import Accountant
from gfl_lightning.privacy.gaussian import require_delta

Neighbours = Literal["replace", "zero_out"]


@dataclass(frozen=True)
class Guarantee:
    """What is claimed.

    >>> Guarantee(max_epsilon=8.0).neighbours
    'replace'

    Args:
        delta: δ.
        neighbours: which federations must look alike: those where a unit is replaced by any other (``replace``, the
            stronger promise) or by nothing, a null record that contributes 0 (``zero_out``).
        accountant: ``rdp`` or ``prv``, used where local steps are on samples; everything else is exact.
        max_epsilon: the budget against the server, if there is one.
        calibrate: whether the noise is set so that all rounds of a fit together spend ``max_epsilon``.
    """

    delta: float = 1e-5
    neighbours: Neighbours = "replace"
    accountant: Accountant = "rdp"
    max_epsilon: float | None = None
    calibrate: bool = False

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_choice("neighbours", self.neighbours, ("replace", "zero_out"))
        require_choice("accountant", self.accountant, ("rdp", "prv"))
        budget = self.max_epsilon
        require(budget is None or 0 < budget < math.inf, "max_epsilon", "be positive and finite", budget)
        require(not self.calibrate or budget is not None, "max_epsilon", "be given where calibrate is true", budget)
