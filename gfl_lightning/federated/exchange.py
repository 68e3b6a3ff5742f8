"""Step 2 of a round: every client's representation ĥ_j and the factors of its Jacobian, at W̄ or at its last upload.

For the paper's encoder the Jacobian of h = W2 relu(W1 x) is known by the activation a = relu(W1 x), which is its
W2-part, and by the pattern s = 1{W1 x > 0}: ∂h_o/∂W1[m,:] = W2[o,m] s_m x. Nothing larger is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.federated.features import Features
from gfl_lightning.federated.table import SampleTable
from gfl_lightning.models.encoder import Encoder, Weights


@dataclass(frozen=True, eq=False)
class UploadGroup:
    """Uploads computed at the same W̄.

    Args:
        weights: that W̄.
        positions: the shared samples they are means of, positions among the Q; ``None`` means all.
        pattern: s of those samples as 0/1 ``[q, m]``, for the paper's encoder.
    """

    weights: Weights
    positions: Tensor | None
    pattern: Tensor | None


@dataclass(frozen=True, eq=False)
class Exchange:
    """What the clients computed at W̄ and what stands uploaded.

    Args:
        z: pre-activations W̄1 x of all samples ``[S, m]``, for the paper's encoder.
        h: representations of all samples at W̄ ``[S, c]``.
        uploaded_h: ĥ_j as last uploaded ``[N, c]``; 0 where there was no upload.
        uploaded_a: mean activation as last uploaded ``[N, m]``, for the paper's encoder.
        groups: the uploads by the W̄ they were computed at; one group where everyone shared.
    """

    z: Tensor | None
    h: Tensor
    uploaded_h: Tensor
    uploaded_a: Tensor | None
    groups: list[UploadGroup]

    @property
    def everyone_shared(self) -> bool:
        """Whether every upload was computed at the current W̄."""
        return len(self.groups) == 1 and self.groups[0].positions is None


def exchange(
    table: SampleTable,
    encoder: Encoder,
    round_number: int,
    weights: Weights,
    uploaded_in: Tensor | None,
    history: dict[int, Weights],
) -> Exchange:
    """Representations of all samples at W̄, and the uploads that stand after this exchange.

    ``uploaded_in`` is the round of each client's last upload; ``None`` means that all are of this round.
    """
    z, a, h = _encode(encoder, weights, table.features)
    if uploaded_in is None:
        mean_h, mean_a, pattern = table.client_mean(table.shared_rows(h)), None, None
        if a is not None:
            shared_a = table.shared_rows(a)
            mean_a, pattern = table.client_mean(shared_a), shared_a.sign()
        return Exchange(z, h, mean_h, mean_a, [UploadGroup(weights, None, pattern)])

    uploaded_h = h.new_zeros(table.graph.num_clients, h.shape[1])
    uploaded_a = None if z is None else z.new_zeros(table.graph.num_clients, z.shape[1])
    groups = []
    for number in uploaded_in[uploaded_in >= 0].unique().tolist():
        positions = (uploaded_in[table.owner] == number).nonzero().flatten()
        rows = table.shared[positions]
        if number == round_number:
            then, then_a, then_h = weights, None if a is None else a[rows], h[rows]
        else:
            then = history[number]
            _, then_a, then_h = _encode(encoder, then, Features(table.graph.x[rows], None, None))
        pattern = None if then_a is None else then_a.sign()
        if then_a is not None and uploaded_a is not None:
            uploaded_a += table.client_mean(then_a, positions)
        uploaded_h += table.client_mean(then_h, positions)
        groups.append(UploadGroup(then, positions, pattern))
    return Exchange(z, h, uploaded_h, uploaded_a, groups)


def _encode(encoder: Encoder, weights: Weights, features: Features) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """z and a of the paper's encoder (``None`` for others) and h; the bits do not depend on how W1 lies in memory."""
    if not encoder.is_papers:
        return None, None, encoder(weights, features.x)
    z = features.times(weights["W1"])
    a = torch.relu(z)
    return z, a, a @ weights["W2"].T
