"""Differential privacy against a server that sees sums alone: everybody's noise hides everybody.

Each client bounds its uploads and adds its share of the noise, as without masks. The server reads nothing of what is
shared but what W̄ carries of it, and of the models their sum. So it is granted every training client's C_k and ∇C_k,
and Σ_k vote_k (W_k + e_k):

    ĥ_j + e_j, ∇ĥ_j + e_j :  (Δ/σ)² R_jᵀ (R Rᵀ)⁺ R_j,   R the rows of training clients in Ã, of those who contributed
    W_j + e_j             :  (Δ/σ)² vote_j² / Σ_k vote_k²,   1/K with equal votes

A share of 1/K is noise that may be √K times smaller for the same ε: each of K clients adds σ/√K where it had to add σ.
Sites that tell the server what they know take their own noise out, and add what their clients receive.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.privacy.accounting import SampledSteps, Spending, epsilon_of, least_multiplier
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, Releases, releases, with_multiplier

TRUSTED = 1e-6
Attendance = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class MaskedView:
    """Share of (Δ/σ)² of each client's uploads that reaches a server which sees masked sums ``[N]``.

    >>> alone = torch.eye(4, dtype=torch.float64)[:, None]
    >>> MaskedView.of(alone, torch.full((4,), 0.25)).update.tolist()
    [0.25, 0.25, 0.25, 0.25]

    Args:
        shared: of ĥ_j and ∇ĥ_j.
        update: of W_k.
    """

    shared: Tensor
    update: Tensor

    @classmethod
    def of(
        cls,
        others: Tensor,
        votes: Tensor,
        contributing: Collection[int] | None = None,
        colluding: Collection[int] = (),
    ) -> MaskedView:
        """From Ã without its diagonal ``[N, L, N]`` and the votes ``[N]``.

        ``contributing`` are the clients in the sums, all by default: whoever drops out adds no noise and puts no pad on
        its own sum. ``colluding`` are clients whose sites tell the server their data, noise and what they receive.
        """
        N = len(votes)
        known = set(range(N)) if contributing is None else set(contributing)
        hidden = sorted(known - set(colluding))
        rows = sorted(set(votes.nonzero().flatten().tolist()) | set(colluding) | (set(range(N)) - known))
        shared, update = torch.ones(N, dtype=torch.float64), torch.ones(N, dtype=torch.float64)
        R = others[rows][:, :, hidden].double().flatten(0, 1)
        shared[hidden] = leverages(R)
        vote = votes[hidden].double().square()
        if float(vote.sum()) > 0:
            update[hidden] = vote / vote.sum()
        return cls(shared, update)


def leverages(R: Tensor) -> Tensor:
    """H_jj of H = Rᵀ (R Rᵀ)⁺ R ``[n]`` for rows ``[K, n]``; 1 where some direction is too weak for it to be trusted."""
    if not R.numel() or not R.any():
        return torch.zeros(R.shape[1], dtype=torch.float64)
    _, singular, V = torch.linalg.svd(R, full_matrices=False)
    relative = singular / singular.max()
    nothing = relative <= max(R.shape) * torch.finfo(R.dtype).eps
    if bool((relative[~nothing] < TRUSTED).any()):
        return torch.ones(R.shape[1], dtype=torch.float64)
    return V[~nothing].square().sum(0).clamp_max(1)


def masked_spending(made: Releases, view: MaskedView, attendance: Attendance) -> Spending:
    """What the server has seen of the client of which it has seen most, each having trained and shared so often.

    Local steps on samples are counted as if the models came one by one.
    """
    trained, shared = (counts.double() for counts in attendance)
    of_shared = made.costs["hidden"].mu_squared + made.costs["jacobian"].mu_squared
    mu_squared = _product(shared * view.shared, of_shared) + _product(
        trained * view.update, made.costs["update"].mu_squared
    )
    pure = _product(shared, made.costs["hidden"].pure + made.costs["jacobian"].pure)
    pure = pure + _product(trained, made.costs["update"].pure)
    sampled = () if made.step is None else (SampledSteps(*made.step, int(trained.max()) * made.facts.steps),)
    return Spending(float(mu_squared.max()), sampled, float(pure.max()))


def masked_epsilon(
    protection: Protection, guarantee: Guarantee, facts: Facts, view: MaskedView, attendance: Attendance
) -> float:
    """ε at δ against a server that sees masked sums; ∞ where something has no bound or no noise."""
    made = releases(protection, guarantee, facts)
    if made.gaps:
        return math.inf
    return epsilon_of(masked_spending(made, view, attendance), guarantee.delta, guarantee.accountant)


def split_noise(
    protection: Protection, guarantee: Guarantee, facts: Facts, view: MaskedView, attendance: Attendance
) -> Protection:
    """The protection with each client's share of the least noise that keeps the rounds within ``max_epsilon``."""
    budget = guarantee.max_epsilon
    if budget is None:
        raise InputError("max_epsilon must be given where noise is split, got None.")

    def spending(z: float) -> Spending:
        made = releases(with_multiplier(protection, guarantee, facts, z), guarantee, facts)
        if made.gaps:
            raise InputError(f"noise must be split over bounded uploads, got {', '.join(made.gaps)}.")
        return masked_spending(made, view, attendance)

    z = least_multiplier(spending, budget, guarantee.delta, guarantee.accountant)
    return with_multiplier(protection, guarantee, facts, z)


def _product(share: Tensor, cost: Tensor) -> Tensor:
    """share · cost, with 0 · ∞ = 0."""
    return torch.where(share > 0, share * cost, 0.0)
