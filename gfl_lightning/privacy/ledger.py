"""The privacy spent so far, client by client, and what it amounts to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.privacy.accounting import SampledSteps, Spending, epsilon_of, least_multiplier
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, Releases, releases, with_multiplier

Attendance = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Ledger:
    """Sums over the rounds made. ε is the largest over clients; where they differ in several ways at once, bounded.

    Args:
        server: μ² of each client's uploads ``[N]``.
        fellow: μ² of what of them reaches a fellow client ``[N]``.
        pure: ε of each client's purely private uploads ``[N]``, the same for both.
        steps: local steps on samples by each client ``[N]``, by noise over sensitivity and rate.
        gaps: what was released without protection.
        rounds: rounds made.
        evaluations: sharings to evaluate a model beyond those that every fit comes with.
        allowed: the most rounds that a plan of the run has ever allowed.
    """

    server: Tensor
    fellow: Tensor
    pure: Tensor
    steps: tuple[tuple[float, float, Tensor], ...] = ()
    gaps: tuple[str, ...] = ()
    rounds: int = 0
    evaluations: int = 0
    allowed: int = 0

    @classmethod
    def empty(cls, num_clients: int) -> Ledger:
        """Before the first round."""
        zero = torch.zeros(num_clients, dtype=torch.float64)
        return cls(zero, zero, zero)

    def after(self, made: Releases, attendance: Attendance, rounds: int = 1, validations: int = 0) -> Ledger:
        """The ledger after more rounds, in which each client trained and shared so many times ``[N]`` each.

        ``validations`` is how often the clients tell their validation loss; fellow clients learn what comes of it.
        """
        trained, shared = attendance
        facts, costs = made.facts, made.costs
        uploads = _times(shared, costs["hidden"].mu_squared + costs["jacobian"].mu_squared)
        models = _times(trained, costs["update"].mu_squared)
        pure = _times(shared, costs["hidden"].pure + costs["jacobian"].pure) + _times(trained, costs["update"].pure)
        losses = _times(torch.full_like(trained, validations), costs["validation"].mu_squared)
        pure = pure + _times(torch.full_like(trained, validations), costs["validation"].pure)
        steps = self.steps
        if made.step is not None:
            key, counts = made.step, trained.long() * facts.steps
            others = tuple(entry for entry in steps if entry[:2] != key)
            before = [entry[2] for entry in steps if entry[:2] == key]
            steps = (*others, (*key, sum(before, counts)))
        return Ledger(
            self.server + uploads + models + losses,
            self.fellow + _weighted(uploads, facts.leverage) + _weighted(models, facts.diluted) + losses,
            self.pure + pure,
            steps,
            (*self.gaps, *(gap for gap in made.gaps if gap not in self.gaps)),
            self.rounds + rounds,
            self.evaluations,
            self.allowed,
        )

    def unprotected_before(self, rounds: int) -> Ledger:
        """The ledger of a run whose first rounds were made without one."""
        gap = f"everything in the first {rounds} rounds (made without protection)"
        return replace(self.with_gap(gap), rounds=rounds)

    def with_gap(self, *gaps: str) -> Ledger:
        """The ledger after something was released without protection."""
        return replace(self, gaps=(*self.gaps, *(gap for gap in gaps if gap not in self.gaps)))

    def epsilon(self, made: Releases, guarantee: Guarantee) -> tuple[float, float]:
        """ε at δ against the server and against a fellow client."""
        if self.gaps:
            return math.inf, math.inf
        server, fellow = (
            epsilon_of(spending, guarantee.delta, guarantee.accountant) for spending in self.spendings(made)
        )
        return server, fellow

    def server_epsilon(self, made: Releases, guarantee: Guarantee) -> float:
        """ε at δ against the server alone."""
        return math.inf if self.gaps else epsilon_of(self.spendings(made)[0], guarantee.delta, guarantee.accountant)

    def spendings(self, made: Releases) -> tuple[Spending, Spending]:
        """What the server and a fellow client have seen of the client that they have seen most of.

        It includes the representations shared to evaluate the current model: once more, or twice where a client's
        last upload may be old and the kept model is evaluated afresh; and every further evaluation.
        """
        times, hidden = (1 if made.facts.everyone_shares else 2) + self.evaluations, made.costs["hidden"]
        evaluated = times * hidden.mu_squared
        server = self.server + evaluated
        fellow = self.fellow + _weighted(evaluated, made.facts.leverage)
        pure = float((self.pure + times * hidden.pure).max())
        sampled = tuple(SampledSteps(z, rate, int(counts.max())) for z, rate, counts in self.steps)
        return Spending(float(server.max()), sampled, pure), Spending(float(fellow.max()), sampled, pure)

    def state_dict(self) -> dict[str, Any]:
        """Plain containers."""
        return {**vars(self), "steps": [list(entry) for entry in self.steps], "gaps": list(self.gaps)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Ledger:
        """From what :meth:`state_dict` returned."""
        steps = tuple((z, rate, counts) for z, rate, counts in state["steps"])
        return cls(**{**state, "steps": steps, "gaps": tuple(state["gaps"])})


def calibrated(
    protection: Protection,
    guarantee: Guarantee,
    facts: Facts,
    attendance: Attendance,
    rounds: int,
    validations: int = 0,
    budget: float | None = None,
) -> Protection:
    """The protection with the least noise that keeps ``rounds`` rounds within a budget, by default ``max_epsilon``.

    The noise that the protection states is scaled by one factor; where it states none it is that multiple of the
    sensitivity. Clients train and share as often as ``attendance`` says.
    """
    budget = guarantee.max_epsilon if budget is None else budget
    assert budget is not None

    def made(z: float) -> Releases:
        return releases(with_multiplier(protection, guarantee, facts, z), guarantee, facts)

    def spending(z: float) -> Spending:
        return Ledger.empty(facts.num_clients).after(made(z), attendance, rounds, validations).spendings(made(z))[0]

    gaps = made(1.0).gaps
    if gaps:
        raise InputError(f"calibrate must find a bound on everything that is released, got {', '.join(gaps)}.")
    z = least_multiplier(spending, budget, guarantee.delta, guarantee.accountant)
    return with_multiplier(protection, guarantee, facts, z)


def _times(counts: Tensor, cost: Tensor) -> Tensor:
    """counts · cost, with 0 · ∞ = 0."""
    return torch.where(counts > 0, counts.double() * cost, 0.0)


def _weighted(mu_squared: Tensor, share: Tensor) -> Tensor:
    """share · μ², with 0 · ∞ = 0."""
    return torch.where(share > 0, share * mu_squared, 0.0)
