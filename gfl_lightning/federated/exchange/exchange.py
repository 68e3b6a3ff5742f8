"""Step 3 of a round: every client's representation ĥ_j and the factors of its Jacobian, at W̄ or at its last upload.

Where the encoder is structured, its Jacobian is known by the activation a and the pattern s = 1{a > 0} of each sample
(models/encoders/two_layer_relu.py). Nothing larger is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from gfl_lightning.federated.exchange.features import Features
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.federated.protection.jacobian_scale import Unscaled
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights


@dataclass(frozen=True, eq=False)
class UploadGroup:
    """Uploads computed at the same W̄.

    Args:
        weights: that W̄.
        positions: the shared samples they are means of, positions among the Q; ``None`` means all.
        pattern: s of those samples as 0/1 ``[q, m]``, scaled, for a structured encoder.
        scale: what a bound on ∇ĥ_j leaves of the Jacobian of each sample.
    """

    weights: Weights
    positions: Tensor | None
    pattern: Tensor | None
    scale: Unscaled


@dataclass(frozen=True, eq=False)
class Exchange:
    """What the clients computed at W̄ and what stands uploaded.

    Args:
        z: pre-activations W̄1 x of all samples ``[S, m]``, for a structured encoder.
        h: representations of all samples at W̄ ``[S, c]``.
        uploaded_h: ĥ_j as last uploaded ``[N, c]``; 0 where there was no upload.
        uploaded_a: mean activation in the last uploaded ∇ĥ_j ``[N, m]``, for a structured encoder.
        groups: the uploads by the W̄ they were computed at; one group where everyone shared.
        marks: what noise on the uploads is bound to, by the round they were made in.
    """

    z: Tensor | None
    h: Tensor
    uploaded_h: Tensor
    uploaded_a: Tensor | None
    groups: list[UploadGroup]
    marks: dict[int, bytes] = field(default_factory=dict)

    @property
    def everyone_shared(self) -> bool:
        """Whether every upload was computed at the current W̄."""
        return len(self.groups) == 1 and self.groups[0].positions is None


def exchange(
    guard: UploadGuard,
    round_number: int,
    weights: Weights,
    uploaded_in: Tensor | None = None,
    history: dict[int, Weights] | None = None,
) -> Exchange:
    """Representations of all samples at W̄, and the uploads that stand after this exchange.

    ``uploaded_in [N]`` is the round of each client's last upload, ``history`` the W̄ of those that are past; ``None``
    means that all are of this round.
    """
    table, encoder = guard.table, guard.encoder
    z, a, h = _encode(encoder, weights, table.features)
    if uploaded_in is None:
        shared_a = None if a is None else table.shared_rows(a)
        made = _uploads(guard, weights, None, shared_a, table.shared_rows(h))
        mark = guard.mark(weights)
        noisy = guard.noisy(made.h, round_number, mark, None)
        return Exchange(z, h, noisy, made.a, [made.group], {round_number: mark})

    uploaded_h = h.new_zeros(table.graph.num_clients, h.shape[1])
    uploaded_a = None if z is None else z.new_zeros(table.graph.num_clients, z.shape[1])
    groups, marks = [], {round_number: guard.mark(weights)}
    for number in uploaded_in[uploaded_in >= 0].unique().tolist():
        positions = (uploaded_in[table.owner] == number).nonzero().flatten()
        rows = table.shared[positions]
        if number == round_number:
            then, then_a, then_h = weights, None if a is None else a[rows], h[rows]
        else:
            then = (history or {})[number]
            _, then_a, then_h = _encode(encoder, then, Features(table.graph.x[rows], None, None))
        made = _uploads(guard, then, positions, then_a, then_h)
        if made.a is not None and uploaded_a is not None:
            uploaded_a += made.a
        if number not in marks:
            marks[number] = guard.mark(then)
        uploaded_h += guard.noisy(made.h, number, marks[number], uploaded_in == number)
        groups.append(made.group)
    return Exchange(z, h, uploaded_h, uploaded_a, groups, marks)


class _Uploads(NamedTuple):
    """ĥ_j before noise ``[N, c]``, the mean activations in ∇ĥ_j ``[N, m]``, and the rest of ∇ĥ_j."""

    h: Tensor
    a: Tensor | None
    group: UploadGroup


def _uploads(guard: UploadGuard, weights: Weights, positions: Tensor | None, a: Tensor | None, h: Tensor) -> _Uploads:
    """Uploads of the clients whose shared samples have activations ``a [q, m]`` and representations ``h [q, c]``."""
    mean_h = guard.mean_h(h, positions)
    scale = guard.jacobian_scale(weights, positions, a)
    if a is None:
        return _Uploads(mean_h, None, UploadGroup(weights, positions, None, scale))
    mean_a = guard.table.client_mean(scale.rows(a), positions)
    return _Uploads(mean_h, mean_a, UploadGroup(weights, positions, scale.rows(a.sign()), scale))


def _encode(encoder: SizedEncoder, weights: Weights, features: Features) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """z and a of a structured encoder (``None`` for others) and h; the bits do not depend on how W1 lies in memory."""
    linear = encoder.encoder.linear_weight
    if linear is not None:
        return None, None, features.times(weights[linear])
    if encoder.structure is None:
        return None, None, encoder(weights, features.x)
    return encoder.structure.encode(weights, features.times)
