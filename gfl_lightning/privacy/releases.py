"""What one round releases of a client, and how strongly: (Δ/σ)² of each kind of upload, for two adversaries.

The server sees every upload: ĥ_j, ∇ĥ_j and W_k. A fellow client sees what the server sends it: C_k, ∇C_k and W̄.
Neighbouring federations differ in one unit, a client's whole data set or one sample of it, which is replaced by any
other (``replace``) or by nothing, a null record that contributes 0 (``zero_out``). The graph, the numbers of samples
and who takes part are the same in both, and known to everybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.privacy.accounting import Accountant
from gfl_lightning.privacy.gaussian import require_delta
from gfl_lightning.privacy.protection import Protection

Neighbours = Literal["replace", "zero_out"]

HIDDEN, JACOBIAN, MODEL = "ĥ_j", "∇ĥ_j", "W_k"


@dataclass(frozen=True)
class Guarantee:
    """What is claimed.

    Args:
        delta: δ.
        neighbours: which federations must look alike; ``replace`` is the stronger promise.
        accountant: ``rdp`` or ``prv``, used where local steps are on samples; everything else is exact.
        max_epsilon: the budget against the server, if there is one.
        calibrate: whether the noise is set so that all rounds of a fit together spend ``max_epsilon``.
    """

    delta: float = 1e-5
    neighbours: Neighbours = "replace"
    accountant: Accountant = "rdp"
    max_epsilon: float | None = None
    calibrate: bool = False

    def __post_init__(self) -> None:
        require_delta(self.delta)
        require(
            self.neighbours in ("replace", "zero_out"), "neighbours", "be one of replace, zero_out", self.neighbours
        )
        require(self.accountant in ("rdp", "prv"), "accountant", "be one of rdp, prv", self.accountant)
        budget = self.max_epsilon
        require(budget is None or 0 < budget < math.inf, "max_epsilon", "be positive and finite", budget)
        require(not self.calibrate or budget is not None, "max_epsilon", "be given where calibrate is true", budget)


@dataclass(frozen=True, eq=False)
class Facts:
    """What accounting needs to know of a federation of N clients; all of it is public.

    Args:
        shares_hidden: whether ĥ_j is uploaded.
        shares_jacobian: whether ∇ĥ_j is.
        shared: samples in each client's ĥ_j ``[N]``.
        rate: share of its training samples that a client uses in a local step ``[N]``; 0 where it does not train.
        steps: I.
        leverage: share of (Δ/σ)² of ĥ_j and ∇ĥ_j that reaches a fellow client ``[N]``.
        diluted: the same for W_k, which reaches it in an average ``[N]``.
        signal: the most that one C_k alone shows of an upload, signal over noise in C_k over that in the upload.
        everyone_shares: whether all clients share in every round.
    """

    shares_hidden: bool
    shares_jacobian: bool
    shared: Tensor
    rate: Tensor
    steps: int
    leverage: Tensor
    diluted: Tensor
    signal: float
    everyone_shares: bool


@dataclass(frozen=True, eq=False)
class Releases:
    """(Δ/σ)² of one upload of each kind, by client ``[N]``; ∞ where it is not protected.

    Args:
        facts: of the federation.
        hidden: of ĥ_j.
        jacobian: of ∇ĥ_j.
        model: of W_k; 0 where its local steps are accounted for instead.
        step: noise over sensitivity, and rate, of a local step where those are accounted for.
        gaps: the kinds that are not protected, with the reason.
    """

    facts: Facts
    hidden: Tensor
    jacobian: Tensor
    model: Tensor
    step: tuple[float, float] | None
    gaps: tuple[str, ...]


def releases(protection: Protection, guarantee: Guarantee, facts: Facts) -> Releases:
    """What a round releases under a protection."""
    one = torch.ones(len(facts.shared), dtype=torch.float64)
    apart = 2.0 if guarantee.neighbours == "replace" else 1.0
    of_mean = apart / facts.shared.double() if protection.unit == "sample" else apart * one
    gaps = []
    if facts.shares_hidden and (gap := _gap(protection.hidden_clip, protection.hidden_std)):
        gaps.append(f"{HIDDEN} ({gap})")
    if facts.shares_jacobian and (gap := _gap(protection.jacobian_clip, protection.jacobian_std)):
        gaps.append(f"{JACOBIAN} ({gap})")
    step, model = None, 0 * one
    if protection.unit == "sample" and protection.touches_steps and protection.noise_multiplier > 0:
        amplified = guarantee.neighbours == "zero_out"
        step = (protection.noise_multiplier / apart, float(facts.rate.max()) if amplified else 1.0)
    else:
        gap = _gap(protection.update_clip, protection.update_std)
        if gap and protection.touches_steps and protection.unit == "client":
            gap += "; DP-SGD protects samples, not clients"
        if gap:
            gaps.append(f"{MODEL} ({gap})")
        any_other = 2.0 if protection.unit == "sample" else apart
        model = _squared(any_other * protection.update_clip * one, protection.update_std)
    return Releases(
        facts,
        _squared(of_mean * protection.hidden_clip, protection.hidden_std) if facts.shares_hidden else 0 * one,
        _squared(of_mean * protection.jacobian_clip, protection.jacobian_std) if facts.shares_jacobian else 0 * one,
        model,
        step,
        tuple(gaps),
    )


def with_multiplier(protection: Protection, guarantee: Guarantee, facts: Facts, z: float) -> Protection:
    """The protection with z times the noise it has, or z times the sensitivity where something bounded has none."""
    apart = 2.0 if guarantee.neighbours == "replace" else 1.0
    sample = protection.unit == "sample"
    of_mean = apart / float(facts.shared.min()) if sample else apart
    by_steps = sample and protection.touches_steps
    unit_noise = {
        "hidden_std": of_mean * protection.hidden_clip if facts.shares_hidden else math.inf,
        "jacobian_std": of_mean * protection.jacobian_clip if facts.shares_jacobian else math.inf,
        "update_std": math.inf if by_steps else (2.0 if sample else apart) * protection.update_clip,
        "noise_multiplier": apart if by_steps else math.inf,
    }
    noise: dict[str, Any] = {
        name: z * (getattr(protection, name) or unit) for name, unit in unit_noise.items() if math.isfinite(unit)
    }
    return replace(protection, **noise)


def _gap(clip: float, std: float) -> str | None:
    """Why noise and bound are no guarantee, or ``None`` where they are."""
    if math.isfinite(clip):
        return None if std > 0 else "no noise"
    return "no bound" if std > 0 else "neither bound nor noise"


def _squared(sensitivity: Tensor, std: float) -> Tensor:
    return (sensitivity / std).square() if std > 0 else torch.full_like(sensitivity, math.inf)
