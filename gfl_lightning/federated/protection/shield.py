"""Everything that protects the uploads of a federation, in the order of a round: ĥ_j and ∇ĥ_j, local steps, W_k."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.problem import LocalProblem, LocalResult
from gfl_lightning.federated.options import Estimator, ProtocolName
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.federated.protection.jacobian_noise import JacobianNoise, JacobianNoiseSource, entrywise
from gfl_lightning.federated.protection.step_guard import StepGuard
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.protection import Protection

LARGEST_FEATURE = 1e9


@dataclass(frozen=True, eq=False)
class Shield:
    """Bounds and noise of a federation's uploads; all draws are functions of (seed, round, client).

    Args:
        protection: bounds and noise.
        uploads: those of ĥ_j and the bound on ∇ĥ_j.
        rows: Ã_kj, or (P^l)_kj, with j = k set to 0 ``[K, L, N]``, where Jacobians carry noise.
        source: of noise on Jacobians drawn after aggregation; ``None`` where there is none or uploads may be old.
        batch: expected batch size of each training client.
        seed: of the noise.
    """

    protection: Protection
    uploads: UploadGuard
    rows: Tensor | None
    source: JacobianNoiseSource | None
    batch: Tensor
    seed: int

    @classmethod
    def of(
        cls,
        protection: Protection,
        table: SampleTable,
        training: TrainingSet,
        encoder: Encoder,
        rows: Tensor | None,
        everyone_shares: bool,
        batch_size: int | None,
        seed: int,
    ) -> Shield:
        """Prepare the noise; ``rows`` are needed where Jacobians carry some."""
        largest = float(table.graph.x.abs().max())
        require(
            largest <= LARGEST_FEATURE,
            "graph.x",
            f"hold features of at most {LARGEST_FEATURE:g} where uploads are protected, so that nothing overflows",
            largest,
        )
        source = None
        if protection.jacobian_std > 0 and everyone_shares:
            assert rows is not None
            everything = math.isfinite(protection.update_clip) or protection.touches_steps
            x = None if everything else table.graph.x[training.sample]
            source = JacobianNoiseSource.of(protection.jacobian_std, rows, encoder.shapes, encoder.num_classes, x)
        counts = training.counts.to(table.graph.x.dtype)
        batch = counts if batch_size is None else counts.clamp_max(batch_size)
        return cls(protection, UploadGuard(protection, table, encoder, seed), rows, source, batch, seed)

    def over(self, problem: LocalProblem, round_number: int, uploaded_in: Tensor) -> LocalProblem:
        """The local problem of all training clients with its protection."""
        guard = None
        if self.protection.touches_steps:
            bound, multiplier = self.protection.step_clip, self.protection.noise_multiplier
            guard = StepGuard(bound, multiplier, self.batch, None, self.seed, round_number)
        noise = self._jacobian_noise(round_number, uploaded_in)
        return replace(problem, protection=self.protection, noise=noise, step_guard=guard)

    def _jacobian_noise(self, round_number: int, uploaded_in: Tensor) -> JacobianNoise | None:
        if self.source is not None:
            return self.source.draw(generator(self.seed, Stream.JACOBIAN_NOISE, round_number))
        if self.rows is None:
            return None
        rounds = uploaded_in.tolist()
        encoder = self.uploads.encoder
        return entrywise(
            self.rows,
            encoder.shapes,
            encoder.num_classes,
            self.protection.jacobian_std,
            lambda j: generator(self.seed, Stream.JACOBIAN_NOISE, rounds[j], j),
            [j for j, number in enumerate(rounds) if number >= 0],
        )

    def uploaded(self, problem: LocalProblem, result: LocalResult, round_number: int) -> Weights:
        """The average of the models as uploaded, from that of the models as trained."""
        average = dict(result.average)
        for name, noise in self._update_noise(problem, round_number):
            average[name] = average[name] + noise
        if self.source is not None and self.source.reads is not None and result.pull is not None:
            draw, later = (generator(self.seed, Stream.JACOBIAN_NOISE, round_number, *part) for part in ((), (0,)))
            average["W1"] = average["W1"] + self.source.unread(result.pull, problem.chosen, draw, later)
        return average

    def with_all_noise(self, problem: LocalProblem, round_number: int) -> LocalProblem:
        """The problem with all of G_k drawn, by the same law: for what asks after single clients' models."""
        if self.source is None or self.source.reads is None:
            return problem
        noise = replace(self.source, reads=None).draw(generator(self.seed, Stream.JACOBIAN_NOISE, round_number, 1))
        return replace(problem, noise=noise if problem.chosen is None else noise.take(problem.chosen))

    def _update_noise(self, problem: LocalProblem, round_number: int) -> Iterator[tuple[str, Tensor]]:
        """Σ_k vote_k e_k by weight, the noise of every upload being e_k ~ N(0, σ²)."""
        if self.protection.update_std > 0:
            std = self.protection.update_std * torch.linalg.vector_norm(problem.vote)
            source = generator(self.seed, Stream.UPDATE_NOISE, round_number)
            for name, weight in problem.weights.items():
                draws = torch.randn(weight.shape, generator=source, dtype=weight.dtype)
                yield name, std * draws.to(weight)


def require_protection(protection: Protection, protocol: ProtocolName, estimator: Estimator, isolated: bool) -> None:
    """Refuse a protection of something that is not uploaded, or that the protocol would undo."""
    if protection.is_inert:
        return
    require(
        protocol == "jacobian",
        "protocol",
        "be jacobian where uploads are protected, as the factors of the Gram protocol carry the sample itself",
        protocol,
    )
    require(estimator != "exact", "estimator", "be compensated or v1 where uploads are protected", estimator)
    for name, shared, why in (
        ("jacobian", estimator == "compensated" and not isolated, "no Jacobian is shared"),
        ("hidden", not isolated, "no representation is shared"),
    ):
        std, clip = getattr(protection, f"{name}_std"), getattr(protection, f"{name}_clip")
        where = "where the aggregator is the identity" if isolated else f"where the estimator is {estimator}"
        require(shared or std == 0, f"{name}_std", f"be 0 {where}, as {why}", std)
        require(shared or math.isinf(clip), f"{name}_clip", f"be infinite {where}, as {why}", clip)
