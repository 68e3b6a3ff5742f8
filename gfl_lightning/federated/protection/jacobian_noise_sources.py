"""Where the noise on Jacobians of a round comes from: nowhere, after aggregation, or client by client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from gfl_lightning.federated.protection.aggregated_noise import AggregatedNoise
from gfl_lightning.federated.protection.jacobian_noise import JacobianNoise, NoJacobianNoise
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.noise_source import NoiseSource

Marks = Mapping[int, bytes]
"""What noise is bound to, by the round of the uploads."""


class Silent:
    """Nothing is added to Jacobians."""

    def draw(self, round_number: int, uploaded_in: Tensor, marks: Marks) -> NoJacobianNoise:
        """G of all training clients in a round, from the rounds of everyone's last upload ``[N]``."""
        return NoJacobianNoise()

    def draw_all(self, round_number: int, uploaded_in: Tensor, marks: Marks) -> NoJacobianNoise:
        """G with nothing left undrawn, by the same law: for what asks after single clients' models."""
        return self.draw(round_number, uploaded_in, marks)

    def unread(self, pull: Tensor, places: Tensor | None, round_number: int, marks: Marks) -> Weights:
        """What G adds to the average beyond what was read, by weight, from its coefficients ``pull [K, L, c]``."""
        return {}


@dataclass(frozen=True, eq=False)
class AfterAggregation(Silent):
    """Gaussian noise where everyone shares in every round: drawn as G itself.

    Args:
        law: the joint law of G.
        key: of the draws.
    """

    law: AggregatedNoise
    key: NoiseKey

    def draw(self, round_number: int, uploaded_in: Tensor, marks: Marks) -> JacobianNoise:
        """G as far as it is read."""
        return self.law.draw(self._source("read", round_number, marks))

    def draw_all(self, round_number: int, uploaded_in: Tensor, marks: Marks) -> JacobianNoise:
        """G with nothing left undrawn."""
        if self.law.reads is None:
            return self.draw(round_number, uploaded_in, marks)
        return replace(self.law, reads=None).draw(self._source("whole", round_number, marks))

    def unread(self, pull: Tensor, places: Tensor | None, round_number: int, marks: Marks) -> Weights:
        """What is left of the feature weight's part, given what was read."""
        if self.law.reads is None:
            return {}
        draw, later = (self._source(part, round_number, marks) for part in ("read", "unread"))
        return {self.law.name: self.law.unread(pull, places, draw, later)}

    def _source(self, part: str, round_number: int, marks: Marks) -> NoiseSource:
        return self.key.source(f"jacobian, {part}", round_number, hides=marks[round_number])


@dataclass(frozen=True, eq=False)
class ByClient(Silent):
    """E_j of one client after another: any mechanism, and uploads that stand for several rounds, whose noise stays.

    Args:
        mechanism: draws E_j.
        rows: Ã_kj, or (P^l)_kj, with j = k set to 0 ``[K, L, N]``.
        encoder: Ψ_h.
        key: of the draws.
    """

    mechanism: Mechanism
    rows: Tensor
    encoder: SizedEncoder
    key: NoiseKey

    def draw(self, round_number: int, uploaded_in: Tensor, marks: Marks) -> JacobianNoise:
        """G = Σ_j R_kj E_j over the clients that ever uploaded."""
        rounds = uploaded_in.tolist()

        def source(j: int) -> NoiseSource:
            return self.key.source("jacobian", rounds[j], j, hides=marks[rounds[j]])

        clients = [j for j, number in enumerate(rounds) if number >= 0]
        return entrywise(self.mechanism, self.rows, self.encoder, source, clients)


def entrywise(
    mechanism: Mechanism,
    R: Tensor,
    encoder: SizedEncoder,
    draws_of: Callable[[int], NoiseSource],
    clients: list[int],
) -> JacobianNoise:
    """G from E_j of one client after another; ``draws_of(j)`` is the source of client j's noise."""
    K, L, _ = R.shape
    c, shapes = encoder.num_classes, encoder.shapes
    total = {n: R.new_zeros(K, L, c, *shape) for n, shape in shapes.items()}
    for j in clients:
        source = draws_of(j)
        for name, shape in shapes.items():
            E = mechanism.draw((c, *shape), source).to(R)
            total[name] += R[:, :, j].view(K, L, *[1] * E.ndim) * E
    first = encoder.encoder.feature_weight or next(iter(shapes))
    return JacobianNoise(first, total.pop(first), total, None)


def noise_source(
    mechanism: Mechanism, rows: Tensor, encoder: SizedEncoder, x: Tensor | None, everyone_shares: bool, key: NoiseKey
) -> Silent:
    """The cheapest source with the law of a mechanism.

    ``rows [K, L, N]`` are Ã_kj or (P^l)_kj with j = k set to 0, ``x [K, n, d]`` the clients' samples, through which
    alone they read the feature weight's part; ``None`` means that all of it is read.
    """
    if not mechanism.is_noisy:
        return Silent()
    if isinstance(mechanism, Gaussian) and everyone_shares:
        return AfterAggregation(AggregatedNoise.of(mechanism.std, rows, encoder, x), key)
    return ByClient(mechanism, rows, encoder, key)
