"""What a guarantee claims: for whom, against what, how it is counted and how much of it may be spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gfl_lightning.checks import require, require_choice, require_count
from gfl_lightning.privacy.accounting import Accountant
from gfl_lightning.privacy.gaussian import require_delta

Neighbours = Literal["replace", "zero_out"]
Pretrained = Literal["unknown", "public"]
Selection = Literal["inside", "exact"]


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
        pretrained: ``public`` declares that the weights a fit starts from owe nothing to its data; unless they are the
            seed's own, others count as released without protection.
        selection: which round is kept: one ``inside`` the guarantee, that of the lowest private validation loss or the
            last where there is none, or the one of the lowest ``exact`` loss, which ε does not cover.
        colluding: m, how many fellow clients put together what they know.
        ledger: file beside the data that all runs on them share; ``max_epsilon`` is then for all of them together.
    """

    delta: float = 1e-5
    neighbours: Neighbours = "replace"
    accountant: Accountant = "rdp"
    max_epsilon: float | None = None
    calibrate: bool = False
    pretrained: Pretrained = "unknown"
    selection: Selection = "inside"
    colluding: int = 1
    ledger: str | None = None

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require_choice("neighbours", self.neighbours, ("replace", "zero_out"))
        require_choice("accountant", self.accountant, ("rdp", "prv"))
        require_choice("pretrained", self.pretrained, ("unknown", "public"))
        require_choice("selection", self.selection, ("inside", "exact"))
        require_count("colluding", self.colluding)
        budget = self.max_epsilon
        require(budget is None or 0 < budget < math.inf, "max_epsilon", "be positive and finite", budget)
        require(not self.calibrate or budget is not None, "max_epsilon", "be given where calibrate is true", budget)
