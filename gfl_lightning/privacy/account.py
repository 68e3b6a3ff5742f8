"""The privacy of a run's rounds: what protects them, what they have spent, whether there may be another.

What was in force when rounds were made stays in force: in the account, and in a run that takes up its saved state.
The number that is reported is that of a privacy filter: of all rounds that the plan and the budget allow, also where
fewer were made. When a fit stops may depend on its data; how much it was allowed to spend does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gfl_lightning.checks import InputError, require
from gfl_lightning.parts import build, describe
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Attendance, Ledger, calibrated
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, Releases, releases
from gfl_lightning.privacy.report import PrivacyReport, privacy_report, unit_in_words
from gfl_lightning.privacy.shared_ledger import Entry, SharedLedger

REPORTING = ("delta", "accountant", "max_epsilon", "calibrate", "selection", "colluding")
MOST_ROUNDS = 2**24


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
        self.run = ""
        self.shares: tuple[str, ...] = ()
        self.outside: tuple[str, ...] = ()
        self.noise_is_public = False
        self.stops_adaptively = False
        self._asked = not protection.is_inert or guarantee != Guarantee()
        self._named: dict[str, Any] = {}
        self._in_force: Protection | None = None
        self._loaded: dict[str, Any] | None = None
        self._attendance: Callable[[range], Attendance] | None = None
        self._releases: Releases | None = None
        self._planned, self._every = -1, 1
        self._start: Ledger | None = None
        self._ledger: Ledger | None = None
        self._limit: int | None = None
        self._evaluated: set[str] = set()
        self._saved_claim = False

    @property
    def protects(self) -> bool:
        """Whether anything changes what clients upload."""
        return not self.stated.is_inert

    @property
    def in_force(self) -> Protection:
        """The protection of the rounds made, or of those to come."""
        return self._in_force or self.stated

    @property
    def claims(self) -> bool:
        """Whether the rounds have a finite ε to keep: everything that is released is bounded and noisy."""
        return self._releases is not None and not self._releases.gaps

    @property
    def validates(self) -> bool:
        """Whether clients tell a noisy validation loss."""
        return self.in_force.validation.is_noisy

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
        self.run, self._saved_claim, self._evaluated = saved["run"], saved["claims"], set(saved["evaluated"])

    def save(self, seed: int) -> dict[str, Any]:
        """What :meth:`load` wants, as plain containers."""
        return {
            "stated": describe(self.stated),
            "in_force": describe(self.in_force),
            "guarantee": describe(self.guarantee),
            "seed": seed,
            "run": self.run,
            "claims": self.claims or self._saved_claim,
            "evaluated": sorted(self._evaluated),
        }

    def plan(
        self, facts: Facts, attendance: Callable[[range], Attendance], rounds: int, every: int = MOST_ROUNDS
    ) -> Protection:
        """The protection to build a federation with, its noise calibrated to ``rounds`` if so asked and not yet done.

        ``attendance`` tells how often each client trains and shares in some rounds; a validation event comes ``every``
        so many rounds, and once more at the end.
        """
        self._attendance, self._releases, self._planned, self._every = attendance, None, rounds, every
        protection = self.in_force
        if self.guarantee.calibrate and self._in_force is None and self.protects:
            require(rounds >= 1, "max_steps", "be the number of rounds that the noise is calibrated for", rounds)
            events = 0 if self.stated.validation.is_inert else rounds // every + 1
            there = attendance(range(rounds))
            protection = calibrated(self.stated, self.guarantee, facts, there, rounds, events, self._budget())
        if self._asked:
            self._releases = releases(protection, self.guarantee, facts)
        self._in_force = protection if self.protects else None
        return protection

    def require_a_first_round(self) -> None:
        """Refuse a budget that does not allow one round."""
        budget = self._budget()
        if budget is not None and self._releases is not None:
            first = self._at(1, self._empty())
            spends = first.server_epsilon(self._releases, self.guarantee)
            why = f" ({', '.join(first.gaps)})" if first.gaps else ""
            others = self.guarantee.max_epsilon - budget if self.guarantee.max_epsilon is not None else 0.0
            beside = f" beside the {others:.4g} of other runs on {self.guarantee.ledger}" if others else ""
            rule = f"allow at least one round, which spends {spends:.4g}{why}{beside}"
            require(spends <= budget, "max_epsilon", rule, self.guarantee.max_epsilon)

    def begin(self, rounds_done: int, saved: dict[str, Any] | None, known_start: bool = True) -> None:
        """Start a ledger, take up a saved one, or go on with the one at hand; ``known_start``: from the seed's W̄₀."""
        if self._releases is None:
            self._ledger = None
            return
        spent = Ledger.from_state(self._loaded) if self._loaded else self._ledger
        if rounds_done == 0:
            if spent is not None and spent.rounds:
                raise InputError(
                    "a protected model must be trained by one fit, as its account is of one, "
                    f"got a model of {spent.rounds} rounds; go on with ckpt_path, or make a new one."
                )
            if not known_start and self.guarantee.pretrained != "public":
                self.shares = (*self.shares, "W̄₀ (neither the seed's weights nor declared public)")
            self.require_a_first_round()
            self._ledger = self._empty()
        elif saved is not None:
            self._ledger = Ledger.from_state(saved)
        elif self._ledger is None or self._ledger.rounds != rounds_done:
            self._ledger = self._empty().unprotected_before(rounds_done)
        self._loaded, self._start = None, self._ledger
        self._limit = self._most_rounds(self._ledger)
        self._write_down()

    @property
    def allows_another(self) -> bool:
        """Whether the budget, if there is one, allows another round."""
        if self._ledger is None or self.guarantee.max_epsilon is None:
            return True
        return self._limit is None or self._ledger.rounds < self._limit

    def charge(self) -> dict[str, float]:
        """Count one more round, before it is made; ε against server and fellow clients after it."""
        if self._ledger is None or self._releases is None:
            return {}
        assert self._attendance is not None
        done = self._ledger.rounds
        self._ledger = self._ledger.after(self._releases, self._attendance(range(done, done + 1)))
        server, fellow = self._ledger.epsilon(self._releases, self.guarantee)
        if not self.noise_is_public:
            return {"epsilon": server, "epsilon_fellow": fellow}
        return {"epsilon": math.inf, "epsilon_fellow": math.inf, "epsilon_nominal": server}

    def charge_validation(self) -> None:
        """Count one more noisy validation loss of every client that has one, before it is told."""
        if self._ledger is not None and self._releases is not None:
            nobody = 0 * self._releases.facts.shared
            self._ledger = self._ledger.after(self._releases, (nobody, nobody), rounds=0, validations=1)

    def charge_evaluation(self, mark: str, repeats: bool, same_data: bool, cost: Callable[[], float]) -> None:
        """Count one more sharing of everybody's ĥ to evaluate a model, before it is made, or refuse it.

        Args:
            mark: what the sharing depends on; the same one again tells nothing new.
            repeats: whether everybody has shared at these weights in a round.
            same_data: whether the data are those of the fit.
            cost: ε of the sharing by itself.
        """
        live = self._ledger is not None and same_data
        claims = self.claims or self._saved_claim
        if not claims or mark in self._evaluated or (repeats and same_data):
            return
        if live and self._ledger is not None:
            further = int(bool(self._evaluated))  # the first comes with every fit
            self._ledger = replace(self._ledger, evaluations=self._ledger.evaluations + further)
            self._evaluated.add(mark)
            self._write_down()
            return
        file = self.guarantee.ledger
        if file is None:
            raise InputError(
                "ledger must name a file for what is shared after a protected fit (callbacks.PrivacyBudget(ledger=…)), "
                "as evaluating these weights on these data shares everybody's ĥ once more, got none."
            )
        entry = Entry(f"{self.run} {mark[:16]}", cost(), self.guarantee.delta, self._unit, "one sharing of ĥ")
        SharedLedger(Path(file)).write(entry, self.guarantee.max_epsilon)
        self._evaluated.add(mark)

    def report(self) -> PrivacyReport | None:
        """What the rounds that were allowed may spend; ``None`` where nobody asked."""
        if self._ledger is None or self._releases is None:
            return None
        file = self.guarantee.ledger
        total = None if file is None else SharedLedger(Path(file)).total()
        made, final = self._ledger.rounds, self._final()
        return privacy_report(
            final, made, self._releases, self.in_force, self.guarantee, self.noise_is_public, self.outside, total
        )

    def ledger_state(self) -> dict[str, Any]:
        """The ledger for a checkpoint, if there is one."""
        return {} if self._ledger is None else {"privacy": self._ledger.state_dict()}

    def _final(self) -> Ledger:
        """The ledger once every round that is allowed has been made."""
        assert self._ledger is not None
        if self._limit is None and self.stops_adaptively:
            return self._ledger.with_gap("the number of rounds (chosen on the way, with no limit planned)")
        if self._limit is None or self._limit <= self._ledger.rounds or self._start is None:
            return self._ledger
        there = self._at(self._limit, self._start)
        return replace(there.with_gap(*self._ledger.gaps), evaluations=self._ledger.evaluations)

    def _at(self, rounds: int, since: Ledger) -> Ledger:
        """The ledger after so many rounds in all, with all of their validation events."""
        assert self._releases is not None
        assert self._attendance is not None
        ahead = range(since.rounds, max(rounds, since.rounds))
        events = rounds // self._every - since.rounds // self._every + 1 if self.validates else 0
        return since.after(self._releases, self._attendance(ahead), len(ahead), events)

    def _most_rounds(self, since: Ledger) -> int | None:
        """How many rounds the plan and the budget allow; ``None`` where nothing limits them."""
        budget, planned = self._budget(), self._planned if self._planned >= 0 else None
        if budget is None or self._releases is None or since.gaps or self._releases.gaps:
            return planned
        made = self._releases

        def fits(rounds: int) -> bool:
            return self._at(rounds, since).server_epsilon(made, self.guarantee) <= budget

        low, high = since.rounds, since.rounds + 1
        while high < MOST_ROUNDS and (planned is None or high < planned) and fits(high):
            low, high = high, 2 * high
        high = high if planned is None else min(high, planned)
        if high > low and fits(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _budget(self) -> float | None:
        """What this run may spend: the budget, less what other runs on the ledger may."""
        most, file = self.guarantee.max_epsilon, self.guarantee.ledger
        return most if most is None or file is None else SharedLedger(Path(file)).left(most, self.run)

    def _write_down(self) -> None:
        """Write what the run may spend to the ledger file, if there is one, before a round is made."""
        file = self.guarantee.ledger
        if file is None or self._releases is None:
            return
        final = self._final()
        spends = math.inf if self.noise_is_public else final.server_epsilon(self._releases, self.guarantee)
        entry = Entry(self.run, spends, self.guarantee.delta, self._unit, f"a fit of {final.rounds} rounds")
        SharedLedger(Path(file)).write(entry, self.guarantee.max_epsilon)

    @property
    def _unit(self) -> str:
        return unit_in_words(self.in_force, self.guarantee)

    def _empty(self) -> Ledger:
        assert self._releases is not None
        return Ledger.empty(self._releases.facts.num_clients).with_gap(*self.shares)

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
