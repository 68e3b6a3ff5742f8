"""The privacy of a run's rounds: what protects them, what they have spent, whether there may be another.

Noise is drawn from (seed, round, client), so the same round must never be shared under noise of another size, or for
another claim. What was in force when rounds were made therefore stays in force: in the account, and in a run that takes
up its saved state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from gfl_lightning.checks import InputError, require
from gfl_lightning.parts import build, describe
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Attendance, Ledger, calibrated
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, Releases, releases
from gfl_lightning.privacy.report import PrivacyReport, privacy_report

REPORTING = ("delta", "accountant", "max_epsilon", "calibrate")


class PrivacyAccount:
    """Follows the releases of one federation, round by round, once someone asks for it.

    A claim is stated (by the model, callbacks or a saved state), a federation is planned from it before it is built,
    and every round is charged before it is made.

    >>> account = PrivacyAccount(Protection(), Guarantee())
    >>> account.protect(delta=1e-6)
    >>> account.guarantee.delta, account.protects
    (1e-06, False)

    Args:
        protection: bounds and noise.
        guarantee: the claim.
    """

    def __init__(self, protection: Protection, guarantee: Guarantee) -> None:
        self.stated = protection
        self.guarantee = guarantee
        self._asked = not protection.is_inert or guarantee != Guarantee()
        self._named: dict[str, Any] = {}
        self._in_force: Protection | None = None
        self._loaded: dict[str, Any] | None = None
        self._attendance: Callable[[range], Attendance] | None = None
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
        self._asked = True
        self._named |= options
        self._set(options)

    def load(self, saved: dict[str, Any] | None, seed: int, ledger: dict[str, Any] | None) -> None:
        """Take up what rounds were made under; what is named besides must be the same."""
        if saved is None:
            return
        before = build(saved["stated"], Protection), build(saved["guarantee"], Guarantee)
        claim = vars(before[0]) | vars(before[1])
        self._require_unchanged("seed", saved["seed"], seed, "the checkpoint")
        for name, value in self._named.items():
            self._require_unchanged(name, claim[name], value, "the checkpoint")
        self._set({name: value for name, value in claim.items() if name not in self._named})
        self._asked = True
        self._in_force = build(saved["in_force"], Protection)
        self._loaded = ledger

    def save(self, seed: int) -> dict[str, Any]:
        """What :meth:`load` wants, as plain containers."""
        return {
            "stated": describe(self.stated),
            "in_force": describe(self.in_force),
            "guarantee": describe(self.guarantee),
            "seed": seed,
        }

    def plan(self, facts: Facts, attendance: Callable[[range], Attendance], rounds: int) -> Protection:
        """The protection to build a federation with, its noise calibrated to ``rounds`` if so asked and not yet done.

        ``attendance`` tells how often each client trains and shares in some rounds.
        """
        self._attendance, self._releases = attendance, None
        protection = self.in_force
        if self.guarantee.calibrate and self._in_force is None and self.protects:
            require(rounds >= 1, "max_steps", "be the number of rounds that the noise is calibrated for", rounds)
            protection = calibrated(self.stated, self.guarantee, facts, attendance(range(rounds)), rounds)
        if self._asked:
            self._releases = releases(protection, self.guarantee, facts)
        self._in_force = protection if self.protects else None
        return protection

    def require_a_first_round(self) -> None:
        """Refuse a budget that does not allow one round."""
        budget = self.guarantee.max_epsilon
        if budget is not None and self._releases is not None:
            first = self._after(Ledger.empty(self._releases.facts.num_clients))
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
        empty = Ledger.empty(self._releases.facts.num_clients)
        if rounds_done == 0:
            if spent is not None and spent.rounds:
                raise InputError(
                    "a protected model must be trained by one fit, as a second one would use its noise again, "
                    f"got a model of {spent.rounds} rounds; go on with ckpt_path, or make a new one."
                )
            self.require_a_first_round()
            self._ledger = empty
        elif saved is not None:
            self._ledger = Ledger.from_state(saved)
        elif self._ledger is None or self._ledger.rounds != rounds_done:
            self._ledger = empty.unprotected_before(rounds_done)
        self._loaded = None

    @property
    def allows_another(self) -> bool:
        """Whether the budget, if there is one, allows another round."""
        budget = self.guarantee.max_epsilon
        if budget is None or self._ledger is None or self._releases is None:
            return True
        if self._allowed[0] != self._ledger.rounds:
            spent = self._after(self._ledger).server_epsilon(self._releases, self.guarantee)
            self._allowed = (self._ledger.rounds, spent <= budget)
        return self._allowed[1]

    def charge(self) -> dict[str, float]:
        """Count one more round, before it is made; ε against server and fellow clients after it."""
        if self._ledger is None or self._releases is None:
            return {}
        self._ledger = self._after(self._ledger)
        server, fellow = self._ledger.epsilon(self._releases, self.guarantee)
        return {"epsilon": server, "epsilon_fellow": fellow}

    def report(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nobody asked."""
        if self._ledger is None or self._releases is None:
            return None
        return privacy_report(self._ledger, self._releases, self.in_force, self.guarantee)

    def ledger_state(self) -> dict[str, Any]:
        """The ledger for a checkpoint, if there is one."""
        return {} if self._ledger is None else {"privacy": self._ledger.state_dict()}

    def _after(self, ledger: Ledger) -> Ledger:
        """The ledger after its next round."""
        assert self._releases is not None
        assert self._attendance is not None
        return ledger.after(self._releases, self._attendance(range(ledger.rounds, ledger.rounds + 1)))

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
