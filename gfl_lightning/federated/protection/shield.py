"""Everything that protects the uploads of a federation, in the order of a round: local steps, W_k, ĥ_j and ∇ĥ_j."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.local.options import Estimator
from gfl_lightning.federated.local.problem import LocalProblem, LocalResult
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.federated.protection.jacobian_noise_sources import Silent
from gfl_lightning.federated.protection.step_guard import PlainSteps, StepGuard
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.protection import Protection

LARGEST_FEATURE = 1e9


@dataclass(frozen=True, eq=False)
class Shield:
    """Bounds and noise of a federation's uploads; all draws are functions of (seed, round, client).

    Args:
        guard: of ĥ_j, and the bound on ∇ĥ_j.
        jacobians: where noise on ∇ĥ_j comes from.
        batch: expected batch size of each training client.
    """

    guard: UploadGuard
    jacobians: Silent
    batch: Tensor

    @property
    def protection(self) -> Protection:
        """Bounds and noise."""
        return self.guard.protection

    def steps(self, round_number: int) -> PlainSteps:
        """The guard of a round's local steps."""
        steps = self.protection.steps
        if steps.is_inert:
            return PlainSteps()
        return StepGuard(steps.clip, steps.noise_multiplier, self.batch, None, self.guard.seed, round_number)

    def uploaded(self, problem: LocalProblem, result: LocalResult, round_number: int) -> Weights:
        """The average of the models as uploaded, from that of the models as trained: Σ_k vote_k e_k is added."""
        average = dict(result.average)
        mechanism = self.protection.update
        if mechanism.is_noisy:
            source = generator(self.guard.seed, Stream.UPDATE_NOISE, round_number)
            for name, weight in problem.weights.items():
                noise = mechanism.draw_sum(problem.vote, tuple(weight.shape), source, weight.dtype)
                average[name] = average[name] + noise.to(weight)
        for name, unread in self.jacobians.unread(result.pull, problem.chosen, round_number).items():
            average[name] = average[name] + unread
        return average


def require_protection(
    protection: Protection, protocol: ProtocolName, estimator: Estimator, isolated: bool, x: Tensor
) -> None:
    """Refuse a protection of something that is not uploaded, that the protocol would undo or that could overflow."""
    if protection.is_inert:
        return
    require(
        protocol == "jacobian",
        "protocol",
        "be jacobian where uploads are protected, as the factors of the Gram protocol carry the sample itself",
        protocol,
    )
    require(estimator != "exact", "estimator", "be compensated or v1 where uploads are protected", estimator)
    where = "where the aggregator is the identity" if isolated else f"where the estimator is {estimator}"
    for name, shared, why in (
        ("jacobian", estimator == "compensated" and not isolated, "no Jacobian is shared"),
        ("hidden", not isolated, "no representation is shared"),
    ):
        mechanism = getattr(protection, name)
        require(shared or not mechanism.is_noisy, f"{name} noise", f"be 0 {where}, as {why}", mechanism)
        unbounded = math.isinf(mechanism.clip)
        require(shared or unbounded, f"{name}.clip", f"be infinite {where}, as {why}", mechanism.clip)
    largest = float(x.abs().max()) if torch.isfinite(x).all() else math.inf
    require(
        largest <= LARGEST_FEATURE,
        "graph.x",
        f"hold features of at most {LARGEST_FEATURE:g} where uploads are protected, so that nothing overflows",
        largest,
    )
