"""Everything that leaves a client or the server: small frozen records of tensors, with a size in bytes.

Nothing else may pass between parties. The Jacobian protocol is the paper's; the Gram protocol sends the factors of
the same Jacobians and of the same model update, which for the paper's encoder, or a linear one, determine them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class Message:
    """A record of tensors; ``nbytes`` is what its numbers take on a wire, without framing.

    >>> RepresentationUpload(client=3, h=torch.zeros(7)).nbytes
    28
    """

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, booleans packed eight to a byte."""
        return sum(_nbytes(getattr(self, field.name)) for field in fields(self))


def _nbytes(value: Any) -> int:
    if isinstance(value, Tensor):
        bits = value.numel() if value.dtype == torch.bool else 8 * value.numel() * value.element_size()
        return -(-bits // 8)
    return sum(map(_nbytes, value.values())) if isinstance(value, dict) else 0


@dataclass(frozen=True, eq=False)
class ModelBroadcast(Message):
    """Server to clients: W̄."""

    weights: Weights


@dataclass(frozen=True, eq=False)
class RepresentationUpload(Message):
    """Client to server: ĥ_j ``[c]``."""

    client: int
    h: Tensor


@dataclass(frozen=True, eq=False)
class JacobianUpload(Message):
    """Client to server: ∇ĥ_j, for each weight ``[c, …]``."""

    client: int
    jacobian: Weights


@dataclass(frozen=True, eq=False)
class FactorUpload(Message):
    """Client to server, Gram protocol: ∇ĥ_j by its factors.

    ``activation [m]`` is the W2-part. The W1-part is W̄2[o,m] U_j[m,:]: a client with one sample sends the pattern
    ``[m]`` and, the first time, the direction ``[d]`` of the rank-one U_j = s xᵀ; a client with several sends the
    mean ``U [m, d]``. The server learns what ∇ĥ_j would have told it: with one sample, that sample; with several,
    the direction of a sample that is alone in switching some unit on.

    For a linear encoder ``activation [d]`` is x̄_j, the mean of what j shares, and all there is: ∇ĥ_j[o] = e_o x̄_jᵀ.
    """

    client: int
    activation: Tensor
    pattern: Tensor | None = None
    direction: Tensor | None = None
    U: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RepresentationAggregate(Message):
    """Server to client k: C_k = Σ_{j≠k} Ã_kj ĥ_j ``[c]``, or of each hop ``[L, c]``."""

    client: int
    C: Tensor


@dataclass(frozen=True, eq=False)
class JacobianAggregate(Message):
    """Server to client k: ∇C_k = Σ_{j≠k} Ã_kj ∇ĥ_j, for each weight ``[c, …]``, or of each hop ``[L, c, …]``."""

    client: int
    grad_C: Weights


@dataclass(frozen=True, eq=False)
class FactorAggregate(Message):
    """Server to client k, Gram protocol: ∇C_k as far as k's training needs it.

    ``A [m]`` = Σ_{j≠k} Ã_kj a_j. A client with one sample receives ``cross [m]`` = T_k x_k, one with several ``T
    [m, d]``. Where uploads of different ages stand, their W̄2 differ and are multiplied in: ``[c, m]``, ``[c, m, d]``.
    Masked sums hold A and T under either protocol, of each hop where Ψ_G is learnable: ``[L, m]``, ``[L, m, d]``.
    For a linear encoder ``A [d]`` = Σ_{j≠k} Ã_kj x̄_j is ∇C_k, and W_k comes back whole.
    """

    client: int
    A: Tensor
    cross: Tensor | None = None
    T: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ModelUpload(Message):
    """Client to server: W_k after its local steps."""

    client: int
    weights: Weights


@dataclass(frozen=True, eq=False)
class FactorModelUpload(Message):
    """Client with one sample to server, Gram protocol: what determines W_k.

    W2,k ``[c, m]``, the sum of δ over the local steps ``[m]`` and the sum of residuals ``[c]``.
    """

    client: int
    W2: Tensor
    delta: Tensor
    residual: Tensor
