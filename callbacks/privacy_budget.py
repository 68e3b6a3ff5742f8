"""The claim that protection is measured against, and the end of a fit that has spent its budget."""

from __future__ import annotations

from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.accounting import Accountant
from gfl_lightning.privacy.protection import Protection, Unit
from gfl_lightning.privacy.releases import Guarantee, Neighbours


class PrivacyBudget(ProtectingCallback):
    """What ε is about, and a budget of it: a fit stops before the round that would exceed the budget.

    Args:
        max_epsilon: the largest ε against the server; none means that ε is only reported.
        delta: δ.
        unit: ``client`` promises for a client's whole data set, ``sample`` for one sample of it; with ``sample`` the
            bounds on ĥ_j and ∇ĥ_j are on each sample's part of these means.
        neighbours: ``replace`` (a unit's data against any other) or ``zero_out`` (against nothing).
        accountant: ``rdp``, or ``prv`` (tighter and slower), where local steps are on samples.
        calibrate: set the noise so that ``max_steps`` rounds spend ``max_epsilon``. Noise that is stated is scaled by
            one factor, so it only says the proportions; where something bounded has none, it is in proportion to the
            sensitivity.
    """

    def __init__(
        self,
        max_epsilon: float | None = None,
        delta: float = 1e-5,
        unit: Unit = "client",
        neighbours: Neighbours = "replace",
        accountant: Accountant = "rdp",
        calibrate: bool = False,
    ) -> None:
        guarantee = Guarantee(delta, neighbours, accountant, max_epsilon, calibrate)
        super().__init__(vars(guarantee) | {"unit": Protection(unit=unit).unit})
