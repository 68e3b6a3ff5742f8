"""The privacy of a run's rounds: what protects them, what they have spent, whether there may be another.

What was in force when rounds were made stays in force: in the account, and in a run that takes up its saved state.
The number that is reported is that of a privacy filter: of all rounds that the plan and the budget allow, also where
fewer were made. When a fit stops may depend on its data; how much it was allowed to spend does not.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gfl_lightning.checks import InputError, require
from gfl_lightning.parts import build, describe
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.horizon import MOST_ROUNDS, Horizon
from gfl_lightning.privacy.ledger import Attendance, Ledger, calibrated
from gfl_lightning.privacy.noise_key import digest
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, Releases, releases
from gfl_lightning.privacy.report import PrivacyReport, privacy_report, unit_in_words
from gfl_lightning.privacy.shared_ledger import Entry, SharedLedger, total_of

REPORTING = ("delta", "accountant", "max_epsilon", "calibrate", "selection")
OTHER_START = "W̄₀ (neither the seed's weights nor declared public)"
BEYOND = "rounds beyond the plan (which something else than plan and budget has asked for)"
OTHER_EVENTS = "when validation losses were told (at other rounds than planned)"


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
        self.settings: tuple[Any, ...] = ()
        self.shares: tuple[str, ...] = ()
        self.outside: tuple[str, ...] = ()
        self.noise_is_public = False
        self.stops_adaptively = False
        self._asked = not protection.is_inert or guarantee != Guarantee()
        self._named: dict[str, Any] = {}
        self._in_force: Protection | None = None
        self._loaded: dict[str, Any] | None = None
        self._horizon: Horizon | None = None
        self._every = 1
        self._planned = guarantee
        self._told = self._unplanned = -1
        self._start: Ledger | None = None
        self._ledger: Ledger | None = None
        self._limit: int | None = None
        self._evaluated: set[str] = set()
        self._saved_claim, self._saved_settings, self._shared_before = False, "", False

    def __getstate__(self) -> dict[str, Any]:
        """What a copy holds: after rounds, no more than one that was loaded, as two would count on their own."""
        state = dict(vars(self))
        if self._ledger is not None and self._ledger.rounds:
            claims = self.claims or self._saved_claim
            state |= {"_ledger": None, "_loaded": self._ledger.state_dict(), "_saved_claim": claims}
        return state

    @property
    def protects(self) -> bool:
        """Whether anything changes what clients upload."""
        return not self.stated.is_inert

    @property
    def in_force(self) -> Protection:
        """The protection of the rounds made, or of those to come."""
        return self._in_force or self.stated

    @property
    def _releases(self) -> Releases | None:
        return None if self._horizon is None else self._horizon.releases

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

    def was_told(self, name: str) -> bool:
        """Whether a field was set by :meth:`protect`."""
        return name in self._named

    def load(self, saved: dict[str, Any] | None, seed: int, ledger: dict[str, Any] | None) -> None:
        """Take up what rounds were made under; what is named besides must be the same."""
        if saved is None:
            self._ledger = None  # what is taken up is of no protected run
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
        same_run = self._ledger is not None and self.run == saved["run"]
        self._ledger = self._ledger if same_run else None
        self._evaluated = set(saved["evaluated"]) | (self._evaluated if same_run else set())
        self.run, self._saved_claim = saved["run"], saved["claims"]
        self._saved_settings = saved["settings"]

    def save(self, seed: int) -> dict[str, Any]:
        """What :meth:`load` wants, as plain containers."""
        return {
            "stated": describe(self.stated),
            "in_force": describe(self.in_force),
            "guarantee": describe(self.guarantee),
            "seed": seed,
            "run": self.run,
            "settings": self._mark_of_the_run(),
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
        self._horizon, self._every, self._planned = None, every, self.guarantee
        protection = self.in_force
        if self.guarantee.calibrate and self._in_force is None and self.protects:
            require(rounds >= 1, "max_steps", "be the number of rounds that the noise is calibrated for", rounds)
            events = 0 if self.stated.validation.is_inert else rounds // every + 1
            there = attendance(range(rounds))
            protection = calibrated(self.stated, self.guarantee, facts, there, rounds, events, self._budget())
        if self._asked:
            made, planned = releases(protection, self.guarantee, facts), rounds if rounds >= 0 else None
            self._horizon = Horizon(made, attendance, planned, every, protection.validation.is_noisy)
        self._in_force = protection if self.protects else None
        return protection

    def require_a_first_round(self) -> None:
        """Refuse a budget that does not allow one round."""
        budget = self._budget()
        if budget is not None and self._horizon is not None:
            first = self._horizon.at(1, self._empty())
            spends = first.server_epsilon(self._horizon.releases, self.guarantee)
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
                self.shares = (*self.shares, OTHER_START)
            if self._shared_before:
                self.shares = (*self.shares, "ĥ_j (shared to evaluate the model before its fit)")
            self.require_a_first_round()
            self._ledger = self._empty()
        elif saved is not None:
            self._ledger = Ledger.from_state(saved)
        elif self._ledger is None or self._ledger.rounds != rounds_done:
            self._ledger = self._empty().unprotected_before(rounds_done)
        evaluations = max(self._ledger.evaluations, len(self._evaluated) - 1)
        ledger = replace(self._ledger.with_gap(*self.shares), evaluations=evaluations)
        if rounds_done == 0 or self._saved_settings not in ("", self._mark_of_the_run()):
            self.run = secrets.token_hex(8)  # a branch with other settings has other noise: it is a run of its own
        self._saved_settings = ""
        self._loaded, self._told, self._unplanned = None, -1, 0
        self._limit = self._most_rounds(ledger)
        self._ledger = self._start = replace(ledger, allowed=max(ledger.allowed, self._limit or 0))
        self._write_down(self.guarantee.max_epsilon)

    def doubt(self, gap: str) -> None:
        """Promise nothing any more, for a reason that was found on the way, and let other runs know."""
        if self._ledger is not None and gap not in self._ledger.gaps:
            self._ledger = self._ledger.with_gap(gap)
            self._write_down(None)

    @property
    def allows_another(self) -> bool:
        """Whether the budget, if there is one, allows another round."""
        if self._ledger is None or self.guarantee.max_epsilon is None:
            return True
        return self._limit is None or self._ledger.rounds < self._limit

    @property
    def is_whole(self) -> bool:
        """Whether every round that plan and budget allow has been made, and no more."""
        if self._ledger is None or self._start is None or self._limit is None:
            return False
        return self._ledger.rounds == max(self._limit, self._start.rounds)

    @property
    def is_shortened(self) -> bool:
        """Whether plan and budget allow fewer rounds than they did when the run was begun or taken up before."""
        return self._ledger is not None and self._limit is not None and self._limit < self._ledger.allowed

    def note_a_sharing(self) -> None:
        """Remember that a model was evaluated before its rounds: what it shared then, nobody counts."""
        self._shared_before |= self._ledger is None and not self._saved_claim

    def charge(self) -> dict[str, float]:
        """Count one more round, before it is made; ε against server and fellow clients after it."""
        if self._ledger is None or self._horizon is None:
            return {}
        made = self._ledger.rounds
        if self._limit is not None and made >= self._limit:
            self.doubt(BEYOND)
        due = self._start is not None and made > self._start.rounds and made % self._every == 0
        if self.validates and due and self._told != made:
            self.doubt(OTHER_EVENTS)
        self._ledger = self._horizon.after_another(self._ledger)
        server, fellow = self._ledger.epsilon(self._horizon.releases, self.guarantee)
        if not self.noise_is_public:
            return {"epsilon": server, "epsilon_fellow": fellow}
        return {"epsilon": math.inf, "epsilon_fellow": math.inf, "epsilon_nominal": server}

    def charge_validation(self) -> None:
        """Count one more noisy validation loss of every client that has one, before it is told.

        It is told at the rounds that are planned and once more, as at the end of a fit.
        """
        if self._ledger is None or self._releases is None or self._told == self._ledger.rounds:
            return  # what was told of this round is the same draw
        self._told = self._ledger.rounds
        self._unplanned += int(self._told % self._every > 0)
        nobody = 0 * self._releases.facts.shared
        self._ledger = self._ledger.after(self._releases, (nobody, nobody), rounds=0, validations=1)
        if self._unplanned > 1:
            self.doubt(OTHER_EVENTS)

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
            before, self._ledger = self._ledger, replace(self._ledger, evaluations=self._ledger.evaluations + further)
            self._require_within_the_budget(before)
            self._evaluated.add(mark)
            self._write_down(self.guarantee.max_epsilon)
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
        total = total_of(self.guarantee.ledger)
        made, final = self._ledger.rounds, self._final()
        return privacy_report(
            final, made, self._releases, self.in_force, self._claim, self.noise_is_public, self.outside, total
        )

    def ledger_state(self) -> dict[str, Any]:
        """The ledger for a checkpoint, if there is one."""
        return {} if self._ledger is None else {"privacy": self._ledger.state_dict()}

    def _final(self) -> Ledger:
        """The ledger once every round that is allowed has been made."""
        assert self._ledger is not None
        if self._limit is None and self.stops_adaptively:
            return self._ledger.with_gap("the number of rounds (chosen on the way, with no limit planned)")
        if self._start is None or self._horizon is None or self._ledger.allowed <= self._ledger.rounds:
            return self._ledger
        there = self._horizon.at(self._ledger.allowed, self._start)
        return replace(there.with_gap(*self._ledger.gaps), evaluations=self._ledger.evaluations)

    def _most_rounds(self, since: Ledger) -> int | None:
        """How many rounds the plan and the budget allow; ``None`` where nothing limits them."""
        budget, horizon = self._budget(), self._horizon
        if horizon is None or budget is None or since.gaps or horizon.releases.gaps:
            return None if horizon is None else horizon.planned
        return horizon.most_rounds(since, lambda one: one.server_epsilon(horizon.releases, self.guarantee) <= budget)

    def _budget(self) -> float | None:
        """What this run may spend: the budget, less what other runs on the ledger may."""
        most, file = self.guarantee.max_epsilon, self.guarantee.ledger
        return most if most is None or file is None else SharedLedger(Path(file)).left(most, self.run)

    def _write_down(self, most: float | None) -> None:
        """Write what the run may spend to the ledger file, if any, unless all would spend more than ``most``."""
        file = self.guarantee.ledger
        if file is None or self._releases is None:
            return
        final = self._final()
        spends = math.inf if self.noise_is_public else final.server_epsilon(self._releases, self.guarantee)
        entry = Entry(self.run, spends, self.guarantee.delta, self._unit, f"a fit of {final.rounds} rounds")
        SharedLedger(Path(file)).write(entry, most)

    def _require_within_the_budget(self, before: Ledger) -> None:
        """Refuse a sharing that the budget has no room for, and forget it."""
        budget = self._budget()
        if budget is None or self._releases is None:
            return
        spends = self._final().server_epsilon(self._releases, self.guarantee)
        if spends > budget * (1 + 1e-9):
            self._ledger = before
            rule = f"allow one more sharing to evaluate a model, with which the fit spends {spends:.4g}"
            require(False, "max_epsilon", rule, self.guarantee.max_epsilon)

    def _mark_of_the_run(self) -> str:
        """What decides every draw and every value of a run's rounds, beside the key and W̄₀."""
        return digest(self.settings, describe(self.in_force), self._every).hex()

    @property
    def _unit(self) -> str:
        return unit_in_words(self.in_force, self._claim)

    @property
    def _claim(self) -> Guarantee:
        """The guarantee, in what the releases were planned by as it was then."""
        planned = self._planned
        if self._horizon is None:
            return self.guarantee
        return replace(self.guarantee, neighbours=planned.neighbours, colluding=planned.colluding)

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
