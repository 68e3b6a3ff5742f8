"""The privacy of a module's rounds: what protects them, what they have spent, whether there may be another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from gfl_lightning.checks import require
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.release_facts import release_facts
from gfl_lightning.privacy.ledger import Ledger, calibrated
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Guarantee, Releases, releases
from gfl_lightning.privacy.report import PrivacyReport, privacy_report


class PrivacyAccount:
    """Follows the releases of one federation, round by round; without protection there is nothing to follow."""

    def __init__(self) -> None:
        self.protection = Protection()
        self.guarantee = Guarantee()
        self._federation: Federation | None = None
        self._releases: Releases | None = None
        self._ledger: Ledger | None = None

    def protect(self, **options: Any) -> None:
        """Change fields of the protection and of the guarantee, for the next federation."""
        claims = {field.name for field in fields(Guarantee)}
        self.protection = replace(self.protection, **{n: v for n, v in options.items() if n not in claims})
        self.guarantee = replace(self.guarantee, **{n: v for n, v in options.items() if n in claims})

    def open(self, make: Callable[[Protection], Federation], rounds: Callable[[], int]) -> Federation:
        """Make the federation, with noise calibrated to a number of rounds if so asked."""
        federation, self._releases = make(self.protection), None
        if self.protection.is_inert:
            budget = self.guarantee.max_epsilon
            rule = "come with bounds on what clients upload, as without any the first round exceeds it"
            require(budget is None, "max_epsilon", rule, budget)
        else:
            facts = release_facts(federation)
            if self.guarantee.calibrate:
                number = rounds()
                require(number >= 1, "max_steps", "be the number of rounds that the noise is calibrated for", number)
                attendance = federation.schedule.attendance(range(number))
                federation = make(calibrated(self.protection, self.guarantee, facts, *attendance, number))
            self._releases = releases(federation.protection, self.guarantee, facts)
            self._require_a_first_round(federation, self._releases)
        self._federation = federation
        return federation

    def _require_a_first_round(self, federation: Federation, made: Releases) -> None:
        budget = self.guarantee.max_epsilon
        if budget is not None:
            first = Ledger.empty(len(made.hidden)).after(made, *federation.schedule.attendance(range(1)))
            spends, _ = first.epsilon(made, self.guarantee)
            require(spends <= budget, "max_epsilon", f"allow at least one round, which spends {spends:.4g}", budget)

    def begin(self, rounds_done: int, saved: dict[str, Any] | None) -> None:
        """Start a ledger, take up a saved one, or go on with the one at hand."""
        if self._releases is None:
            self._ledger = None
            return
        if saved is not None:
            self._ledger = Ledger.from_state(saved)
        elif rounds_done == 0 or self._ledger is None or self._ledger.rounds != rounds_done:
            self._ledger = Ledger.empty(len(self._releases.hidden))
            if rounds_done:
                self._ledger = self._ledger.unprotected_before(rounds_done)

    @property
    def allows_another(self) -> bool:
        """Whether the budget, if there is one, allows another round."""
        budget = self.guarantee.max_epsilon
        if budget is None or self._ledger is None or self._releases is None:
            return True
        return self._after_next().epsilon(self._releases, self.guarantee)[0] <= budget

    def charge(self) -> dict[str, float]:
        """Count one more round; ε against server and fellow clients."""
        if self._ledger is None or self._releases is None:
            return {}
        self._ledger = self._after_next()
        server, fellow = self._ledger.epsilon(self._releases, self.guarantee)
        return {"epsilon": server, "epsilon_fellow": fellow}

    def report(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nothing protects them."""
        if self._ledger is None or self._releases is None or self._federation is None:
            return None
        return privacy_report(self._ledger, self._releases, self._federation.protection, self.guarantee)

    def state(self) -> dict[str, Any]:
        """The ledger for a checkpoint, if there is one."""
        return {} if self._ledger is None else {"privacy": self._ledger.state_dict()}

    def _after_next(self) -> Ledger:
        """The ledger after the next round."""
        assert self._ledger is not None
        assert self._releases is not None
        assert self._federation is not None
        number = self._ledger.rounds
        attendance = self._federation.schedule.attendance(range(number, number + 1))
        return self._ledger.after(self._releases, *attendance)
