"""ε(δ) of all releases so far: exact where each is Gaussian, by Opacus' accountants where some are on samples.

Gaussian releases without sampling compose into one, μ² = Σ (Δ/σ)². Local steps on Poisson samples compose with them
by Rényi orders (RDP, quick and somewhat loose) or numerically by privacy loss (PRV, tight, up to seconds a call).
Opacus takes seconds to import, and where every release is Gaussian nobody needs it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np

from gfl_lightning.checks import require, require_choice
from gfl_lightning.privacy.gaussian import gaussian_epsilon, gaussian_mu, require_delta

Accountant = Literal["rdp", "prv"]

PRV_LIMIT = 100.0


@dataclass(frozen=True)
class SampledSteps:
    """Steps of the Gaussian mechanism on Poisson samples: noise over sensitivity, sampling rate, number."""

    noise_multiplier: float
    rate: float
    steps: int


@dataclass(frozen=True)
class Spending:
    """What one unit has released: Gaussian releases with μ² in all, steps on samples, and purely private releases."""

    mu_squared: float
    sampled: tuple[SampledSteps, ...] = ()
    pure: float = 0.0

    @property
    def is_gaussian(self) -> bool:
        """Whether no release is sampled, so that ε is known exactly."""
        return not any(event.steps for event in self.sampled)

    def merged(self) -> Spending:
        """The same with steps on all samples counted among the Gaussian releases."""
        full = [event.steps / event.noise_multiplier**2 for event in self.sampled if event.rate == 1]
        rest = tuple(event for event in self.sampled if event.rate < 1 and event.steps)
        return Spending(self.mu_squared + sum(full), rest, self.pure)


def epsilon_of(spending: Spending, delta: float, accountant: Accountant = "rdp") -> float:
    """ε at δ, never less than is true; ∞ where something was released without noise.

    Purely private releases add their ε to that of the rest, which spends all of δ.
    """
    require_choice("accountant", accountant, ("rdp", "prv"))
    return spending.pure + _approximate_epsilon(spending, delta, accountant)


def _approximate_epsilon(spending: Spending, delta: float, accountant: Accountant) -> float:
    """ε at δ of all but the purely private releases."""
    require_delta(delta)
    if any(event.steps and event.noise_multiplier == 0 for event in spending.sampled):
        return math.inf
    spending = spending.merged()
    if spending.is_gaussian or math.isinf(spending.mu_squared):
        return gaussian_epsilon(math.sqrt(spending.mu_squared), delta)
    rdp = rdp_epsilon(spending, delta)
    return rdp if accountant == "rdp" else _prv_or(rdp, spending, delta)


def rdp_epsilon(spending: Spending, delta: float) -> float:
    """ε by Rényi orders: the Gaussian part adds μ² α/2 at order α."""
    from opacus.accountants.analysis.rdp import get_privacy_spent  # noqa: PLC0415

    orders = np.array(_orders())
    rdp = orders * spending.mu_squared / 2
    for event in spending.sampled:
        rdp = rdp + event.steps * np.array(_rdp_of_a_step(event.noise_multiplier, event.rate))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")
        epsilon, _ = get_privacy_spent(orders=orders.tolist(), rdp=rdp, delta=delta)
    return max(0.0, float(epsilon))


def prv_epsilon(spending: Spending, delta: float) -> float:
    """ε by numerical composition, an upper bound with an error of at most 0.01; ∞ or an exception where it fails."""
    from opacus.accountants import PRVAccountant  # noqa: PLC0415

    accountant = PRVAccountant()
    accountant.history = [(event.noise_multiplier, event.rate, event.steps) for event in spending.sampled]
    if spending.mu_squared > 0:
        accountant.history.append((1 / math.sqrt(spending.mu_squared), 1.0, 1))
    with np.errstate(all="ignore"):
        return float(accountant.get_epsilon(delta))


def _prv_or(rdp: float, spending: Spending, delta: float) -> float:
    """PRV's ε where it can be had; its grid grows with ε, so that for a large one it would take all memory."""
    if rdp <= PRV_LIMIT:
        try:
            prv = prv_epsilon(spending, delta)
            if math.isfinite(prv):
                return max(prv, gaussian_epsilon(math.sqrt(spending.mu_squared), delta))
            why = f"returned {prv}"
        except Exception as failure:
            why = f"failed ({type(failure).__name__}: {failure})"
    else:
        why = f"is not tried for an epsilon above {PRV_LIMIT:g}"
    warnings.warn(f"Opacus' PRV accountant {why}; epsilon is the RDP accountant's.", stacklevel=3)
    return rdp


@cache
def _orders() -> tuple[float, ...]:
    from opacus.accountants import RDPAccountant  # noqa: PLC0415

    return (*RDPAccountant.DEFAULT_ALPHAS, *range(64, 128, 8), *range(128, 513, 64))


@lru_cache(maxsize=64)
def _rdp_of_a_step(noise_multiplier: float, rate: float) -> tuple[float, ...]:
    from opacus.accountants.analysis.rdp import compute_rdp  # noqa: PLC0415

    rdp = compute_rdp(q=rate, noise_multiplier=noise_multiplier, steps=1, orders=list(_orders()))
    return tuple(float(value) for value in rdp)


def least_multiplier(
    spending: Callable[[float], Spending], epsilon: float, delta: float, accountant: Accountant = "rdp"
) -> float:
    """The least z for which what ``spending(z)`` describes stays within (ε, δ).

    Where every release is Gaussian, μ² is in proportion to 1/z² but for what a lattice adds, and z is exact to a
    millionth or little more; else it is rounded up by at most a thousandth.
    """
    require(0 < epsilon < math.inf, "epsilon", "be positive and finite", epsilon)
    unit = spending(1.0).merged()
    if unit.is_gaussian and not unit.pure:
        z, excess = math.sqrt(unit.mu_squared) / gaussian_mu(epsilon, delta), 1e-9
        while excess < 1 and epsilon_of(spending(z * (1 + excess)), delta, accountant) > epsilon:
            excess *= 2
        if excess < 1:
            return z * (1 + excess)
    low, high = 0.0, 1.0
    while epsilon_of(spending(high), delta, accountant) > epsilon:
        low, high = high, 2 * high
        require(high < 1e9, "epsilon", "be large enough for some noise to reach it", epsilon)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if epsilon_of(spending(middle), delta, accountant) > epsilon:
            low = middle
        else:
            high = middle
    return high
