"""The privacy of a module's rounds: what protects them, what they have spent, whether there may be another.

Noise is drawn from (seed, round, client), so the same round must never be shared under noise of another size, or for
another claim. What was in force when rounds were made therefore stays in force: in the module, and in a run that takes
up its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from gfl_lightning.checks import InputError, require
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.privacy.ledger import Ledger, calibrated
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Guarantee, Releases, releases
from gfl_lightning.privacy.report import PrivacyReport, privacy_report

REPORTING = ("delta", "accountant", "max_epsilon", "calibrate")


class PrivacyAccount:
    """Follows the releases of one federation, round by round, once a callback or a checkpoint asks for it."""

    def __init__(self) -> None:
        self.stated = Protection()
        self.guarantee = Guarantee()
        self._named: dict[str, Any] = {}
        self._in_force: Protection | None = None
        self._loaded: dict[str, Any] | None = None
        self._federation: Federation | None = None
        self._releases: Releases | None = None
        self._ledger: Ledger | None = None
        self._allowed: tuple[int, bool] = (-1, True)

    @property
    def protects(self) -> bool:
        """Whether anything changes what clients upload."""
        return not self.stated.is_inert

    @property
    def in_force(self) -> Protection:
        """The protection of the rounds made, or of those to come."""
        return self._in_force or self.stated

    def protect(self, **options: Any) -> None:
        """Set fields of the protection and of the guarantee, for the next federation."""
        if self._ledger is not None and self._ledger.rounds:
            for name, value in options.items():
                self._require_unchanged(name, self._field(name), value, "the rounds made")
        self._named |= options
        self._set(options)

    def load(self, saved: dict[str, Any] | None, seed: int, ledger: dict[str, Any] | None) -> None:
        """Take up what a checkpoint was made under; what callbacks name besides must be the same."""
        if saved is None:
            return
        claim = saved["stated"] | saved["guarantee"]
        self._require_unchanged("seed", saved["seed"], seed, "the checkpoint")
        for name, value in self._named.items():
            self._require_unchanged(name, claim[name], value, "the checkpoint")
        self._set({name: value for name, value in claim.items() if name not in self._named})
        self._in_force = Protection(**saved["in_force"])
        self._loaded = ledger

    def save(self, seed: int) -> dict[str, Any]:
        """What :meth:`load` wants."""
        return {
            "stated": vars(self.stated),
            "in_force": vars(self.in_force),
            "guarantee": vars(self.guarantee),
            "seed": seed,
        }

    def open(self, make: Callable[[Protection], Federation], rounds: Callable[[], int]) -> Federation:
        """Make the federation, with noise calibrated to a number of rounds if so asked and not yet done."""
        federation, self._releases = make(self.in_force), None
        if self._named or self.protects:
            facts = release_facts(federation)
            if self.guarantee.calibrate and self._in_force is None and self.protects:
                number = rounds()
                require(number >= 1, "max_steps", "be the number of rounds that the noise is calibrated for", number)
                attendance = federation.schedule.attendance(range(number))
                federation = make(calibrated(self.stated, self.guarantee, facts, *attendance, number))
            self._releases = releases(federation.protection, self.guarantee, facts)
        self._in_force = federation.protection if self.protects else None
        self._federation = federation
        return federation

    def require_a_first_round(self) -> None:
        """Refuse a budget that does not allow one round."""
        budget = self.guarantee.max_epsilon
        if budget is not None and self._releases is not None and self._federation is not None:
            attendance = self._federation.schedule.attendance(range(1))
            first = Ledger.empty(len(self._releases.hidden)).after(self._releases, *attendance)
            spends = first.server_epsilon(self._releases, self.guarantee)
            why = f" ({', '.join(first.gaps)})" if first.gaps else ""
            rule = f"allow at least one round, which spends {spends:.4g}{why}"
            require(spends <= budget, "max_epsilon", rule, budget)

    def begin(self, rounds_done: int, saved: dict[str, Any] | None) -> None:
        """Start a ledger, take up a saved one, or go on with the one at hand."""
        if self._releases is None:
            self._ledger = None
            return
        spent = Ledger.from_state(self._loaded) if self._loaded else self._ledger
        if rounds_done == 0:
            if spent is not None and spent.rounds:
                raise InputError(
                    "a protected model must be trained by one fit, as a second one would use its noise again, "
                    f"got a model of {spent.rounds} rounds; go on with ckpt_path, or make a new one."
                )
            self.require_a_first_round()
            self._ledger = Ledger.empty(len(self._releases.hidden))
        elif saved is not None:
            self._ledger = Ledger.from_state(saved)
        elif self._ledger is None or self._ledger.rounds != rounds_done:
            self._ledger = Ledger.empty(len(self._releases.hidden)).unprotected_before(rounds_done)
        self._loaded = None

    @property
    def allows_another(self) -> bool:
        """Whether the budget, if there is one, allows another round."""
        budget = self.guarantee.max_epsilon
        if budget is None or self._ledger is None or self._releases is None:
            return True
        if self._allowed[0] != self._ledger.rounds:
            spent = self._after_next().server_epsilon(self._releases, self.guarantee)
            self._allowed = (self._ledger.rounds, spent <= budget)
        return self._allowed[1]

    def charge(self) -> dict[str, float]:
        """Count one more round, before it is made; ε against server and fellow clients after it."""
        if self._ledger is None or self._releases is None:
            return {}
        self._ledger = self._after_next()
        server, fellow = self._ledger.epsilon(self._releases, self.guarantee)
        return {"epsilon": server, "epsilon_fellow": fellow}

    def report(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nobody asked."""
        if self._ledger is None or self._releases is None or self._federation is None:
            return None
        return privacy_report(self._ledger, self._releases, self._federation.protection, self.guarantee)

    def ledger_state(self) -> dict[str, Any]:
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

    def _field(self, name: str) -> Any:
        return getattr(self.guarantee if name in vars(self.guarantee) else self.stated, name)

    def _set(self, options: dict[str, Any]) -> None:
        claims = {field.name for field in fields(Guarantee)}
        self.stated = replace(self.stated, **{n: v for n, v in options.items() if n not in claims})
        self.guarantee = replace(self.guarantee, **{n: v for n, v in options.items() if n in claims})

    @staticmethod
    def _require_unchanged(name: str, before: Any, now: Any, of: str) -> None:
        """Refuse another protection or claim than the one of rounds already made; how ε is reported may change."""
        rule = f"be {before!r} as in {of}, whose noise and accounting it decides"
        require(name in REPORTING or before == now, name, rule, now)
