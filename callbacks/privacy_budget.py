"""The claim that protection is measured against, and the end of a fit that has spent its budget."""

from __future__ import annotations

from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.accounting import Accountant
from gfl_lightning.privacy.guarantee import Guarantee, Neighbours, Pretrained, Selection
from gfl_lightning.privacy.protection import Protection, Unit


class PrivacyBudget(ProtectingCallback):
    """What ε is about, and a budget of it: a fit stops before the round that would exceed the budget.

    What is left out is as the model says, by default δ = 1e-5 for clients that are replaced by any other.

    >>> PrivacyBudget(max_epsilon=8.0, unit="sample").stated
    {'max_epsilon': 8.0, 'unit': 'sample'}

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
        pretrained: ``public`` declares that the weights a fit starts from owe nothing to its data.
        selection: which round is kept: ``inside`` the guarantee, the default (by the private validation loss, or the
            last), or by ``exact`` validation losses, which ε does not cover.
        colluding: how many fellow clients put together what they know, by default 1.
        ledger: file beside the data that all runs on them share. Before its first round a run writes down what it may
            spend; ``max_epsilon`` is then for all of them together, and who would exceed it is refused.
    """

    def __init__(
        self,
        max_epsilon: float | None = None,
        delta: float | None = None,
        unit: Unit | None = None,
        neighbours: Neighbours | None = None,
        accountant: Accountant | None = None,
        calibrate: bool | None = None,
        pretrained: Pretrained | None = None,
        selection: Selection | None = None,
        colluding: int | None = None,
        ledger: str | None = None,
    ) -> None:
        given = {
            "max_epsilon": max_epsilon,
            "delta": delta,
            "unit": unit,
            "neighbours": neighbours,
            "accountant": accountant,
            "calibrate": calibrate,
            "pretrained": pretrained,
            "selection": selection,
            "colluding": colluding,
            "ledger": ledger,
        }
        stated = {name: value for name, value in given.items() if value is not None}
        checked = {name: value for name, value in stated.items() if name not in ("unit", "calibrate")}
        Guarantee(**checked)  # type: ignore[arg-type]  # refuses what is no claim
        Protection(unit=unit or "client")
        super().__init__(stated)
