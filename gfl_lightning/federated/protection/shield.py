"""Everything that protects the uploads of a federation, in the order of a round: local steps, W_k, ĥ_j and ∇ĥ_j."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.federated.local.options import Estimator
from gfl_lightning.federated.local.problem import LocalProblem, LocalResult
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.federated.protection.jacobian_noise_sources import Silent
from gfl_lightning.federated.protection.step_guard import PlainSteps, StepGuard
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.lattice import on_lattice, spacing
from gfl_lightning.privacy.protection import Protection

LARGEST_FEATURE = 1e9


@dataclass(frozen=True, eq=False)
class Shield:
    """Bounds and noise of a federation's uploads; all draws are functions of a key, the round and what they hide.

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

    def steps(self, round_number: int, hides: bytes) -> PlainSteps:
        """The guard of a round's local steps, which depend on what ``hides`` stands for."""
        steps = self.protection.steps
        if steps.is_inert:
            return PlainSteps()
        draws = partial(self.guard.key.source, "step", round_number, hides=hides)
        return StepGuard(steps.clip, steps.noise_multiplier, self.batch, None, draws)

    def uploaded(self, problem: LocalProblem, result: LocalResult, round_number: int, hides: bytes) -> Weights:
        """The average of the models as uploaded, from that of the models as trained: Σ_k vote_k e_k is added.

        Every client would round its update and its noise; here their averages are, to a lattice as fine against the
        noise in the average.
        """
        average = dict(result.average)
        marks = problem.exchange.marks
        for name, unread in self.jacobians.unread(result.pull, problem.chosen, round_number, marks).items():
            average[name] = average[name] + unread
        mechanism = self.protection.update
        if mechanism.is_noisy:
            source = self.guard.key.source("update", round_number, hides=hides)
            grid = spacing(mechanism.spread * float(torch.linalg.vector_norm(problem.vote)))
            for name, weight in problem.weights.items():
                noise = mechanism.draw_sum(problem.vote, tuple(weight.shape), source)
                average[name] = weight + on_lattice(average[name] - weight, noise, grid)
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
