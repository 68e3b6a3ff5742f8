"""What one round releases of a client, and how strongly, for two adversaries.

The server sees every upload: ĥ_j, ∇ĥ_j and W_k. A fellow client sees what the server sends it: C_k, ∇C_k and W̄.
Neighbouring federations differ in one unit, a client's whole data set or one sample of it. The graph, the numbers of
samples and who takes part are the same in both, and known to everybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.privacy.exact_normal import FINENESS
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.lattice import ROUNDING, rounded
from gfl_lightning.privacy.mechanisms.mechanism import Cost, Mechanism
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection

KINDS = {"hidden": "ĥ_j", "jacobian": "∇ĥ_j", "update": "W_k", "validation": "validation loss"}


@dataclass(frozen=True, eq=False)
class Facts:
    """What accounting needs to know of a federation of N clients; all of it is public.

    Args:
        entries: how many numbers an upload of each kind has; 0 where there is no such upload.
        shared: samples in each client's ĥ_j ``[N]``.
        rate: share of its training samples that a client uses in a local step ``[N]``; 0 where it does not train.
        steps: I.
        leverage: share of (Δ/σ)² of ĥ_j and ∇ĥ_j that reaches a fellow client ``[N]``.
        diluted: the same for W_k, which reaches it in an average ``[N]``.
        signal: the most that one C_k alone shows of an upload, signal over noise in C_k over that in the upload.
        everyone_shares: whether all clients share in every round.
        validated: validation samples of each client ``[N]``; nothing where nobody tells its validation loss.
    """

    entries: dict[str, int]
    shared: Tensor
    rate: Tensor
    steps: int
    leverage: Tensor
    diluted: Tensor
    signal: float
    everyone_shares: bool
    validated: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.shared)


@dataclass(frozen=True, eq=False)
class Releases:
    """What one upload of each kind costs every client.

    Args:
        facts: of the federation.
        costs: by kind; nothing for W_k where its local steps are accounted for instead.
        step: noise over sensitivity, and rate, of a local step where those are accounted for.
        gaps: the kinds that nothing is promised for, with the reason.
    """

    facts: Facts
    costs: dict[str, Cost]
    step: tuple[float, float] | None
    gaps: tuple[str, ...]


def sensitivities(protection: Protection, guarantee: Guarantee, facts: Facts) -> dict[str, Tensor]:
    """Δ, the most by which one unit moves an upload of each kind in Euclidean norm ``[N]``."""
    one = torch.ones(facts.num_clients, dtype=torch.float64)
    apart = _apart(guarantee)
    of_mean = apart / facts.shared.double() if protection.unit == "sample" else apart * one
    validated = facts.validated.double() if len(facts.validated) else 0 * one
    of_loss = torch.where(validated > 0, 1 / validated.clamp_min(1) if protection.unit == "sample" else one, 0.0)
    of_update = (2.0 if protection.unit == "sample" else apart) * one
    return {
        "hidden": of_mean * protection.hidden.clip,
        "jacobian": of_mean * protection.jacobian.clip,
        "update": of_update * protection.update.clip,
        "validation": torch.where(of_loss > 0, of_loss * protection.validation.clip, 0.0),
    }


def releases(protection: Protection, guarantee: Guarantee, facts: Facts) -> Releases:
    """What a round releases under a protection."""
    by_steps = _accounts_for_steps(protection) and protection.steps.noise_multiplier > 0
    costs, gaps = {}, []
    for kind, delta in sensitivities(protection, guarantee, facts).items():
        mechanism: Mechanism = getattr(protection, kind)
        if not _released(kind, protection, facts) or (kind == "update" and by_steps):
            costs[kind] = Cost.nothing(facts.num_clients)
            continue
        costs[kind] = mechanism.cost(rounded(delta, _entries(kind, facts), mechanism.grid), _entries(kind, facts))
        gap = mechanism.gap
        if gap is None and bool(torch.isinf(costs[kind].mu_squared + costs[kind].pure).any()):
            gap = f"{type(mechanism).__name__} promises nothing"
        if gap and kind == "update" and not protection.steps.is_inert and protection.unit == "client":
            gap += "; DP-SGD protects samples, not clients"
        if gap:
            costs[kind] = Cost.unbounded(facts.num_clients)
            gaps.append(f"{KINDS[kind]} ({gap})")
    step = None
    if by_steps:
        amplified = guarantee.neighbours == "zero_out"
        signal = (1 + ROUNDING) * _apart(guarantee) / protection.steps.noise_multiplier
        multiplier = 1 / (signal + 2.0**-FINENESS * math.sqrt(facts.entries["update"]))
        step = (multiplier, float(facts.rate.max()) if amplified else 1.0)
    return Releases(facts, costs, step, tuple(gaps))


def with_multiplier(protection: Protection, guarantee: Guarantee, facts: Facts, z: float) -> Protection:
    """The protection with z times the noise it has, or z times the sensitivity where something bounded has none."""
    by_steps = _accounts_for_steps(protection)
    noisy: dict[str, Any] = {}
    for kind, delta in sensitivities(protection, guarantee, facts).items():
        mechanism: Mechanism = getattr(protection, kind)
        bounded = bool(torch.isfinite(delta).all())
        if bounded and _released(kind, protection, facts) and not (kind == "update" and by_steps):
            noisy[kind] = mechanism.scaled(z, float(delta.max()))
    if by_steps:
        multiplier = z * (protection.steps.noise_multiplier or _apart(guarantee))
        noisy["steps"] = StepNoise(protection.steps.clip, multiplier)
    return replace(protection, **noisy)


def _released(kind: str, protection: Protection, facts: Facts) -> bool:
    """Whether there is such an upload; a validation loss is one only where it is protected."""
    if kind == "validation":
        return not protection.validation.is_inert and bool((facts.validated > 0).any())
    return facts.entries[kind] > 0


def _entries(kind: str, facts: Facts) -> int:
    return 1 if kind == "validation" else facts.entries[kind]


def _apart(guarantee: Guarantee) -> float:
    """How far apart two bounded contributions may be, in units of the bound."""
    return 2.0 if guarantee.neighbours == "replace" else 1.0


def _accounts_for_steps(protection: Protection) -> bool:
    """Whether W_k is accounted for by its local steps: DP-SGD promises for single samples."""
    return protection.unit == "sample" and not protection.steps.is_inert
