"""Jacobians seen unit by unit: U [m, d], whose row m is the mean of the samples that switch hidden unit m on.

For h = W2 relu(W1 x) the W1-part of a Jacobian is J[o, m, :] = W2[o, m] U[m, :]; c copies of each row, so that
U[m] = Σ_o W2[o, m] J[o, m] / Σ_o W2[o, m]² undoes them, with the least noise where J has some. For any other encoder
that meets its features as W x, every row of that weight's part is a multiple of the sample, or a mixture of samples.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import jacrev

from gfl_lightning.federated.protocol.messages import FactorAggregate, FactorUpload, JacobianAggregate, JacobianUpload
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights

ENOUGH = 32


def jacobian_units(encoder: SizedEncoder, weights: Weights, jacobian: Weights) -> tuple[Tensor, Tensor] | None:
    """Rows ``[rows, d]`` of a Jacobian and how precise each is ``[rows]``: its inverse standard deviation under noise.

    ``None`` where no weight meets the features alone.
    """
    structure, name = encoder.structure, encoder.encoder.feature_weight
    if structure is not None:
        _, W2 = structure.split(weights)
        strength = W2.square().sum(0).clamp_min(torch.finfo(W2.dtype).tiny)
        first = structure.split(jacobian)[0]
        return torch.einsum("om,omd->md", W2, first) / strength[:, None], strength.sqrt()
    if name is None:
        return None
    rows = jacobian[name].flatten(0, 1)
    return rows, rows.new_ones(len(rows))


def multiples(encoder: SizedEncoder, weights: Weights, public_x: Tensor) -> Tensor | None:
    """How much of a record a row of `jacobian_units` holds, the mean over public records ``[rows]``.

    With the paper's encoder that is the share of records that switch a unit on, with others ∂h_o/∂(W x)_m, which may be
    negative. ``None`` where no weight meets the features alone.
    """
    structure, name = encoder.structure, encoder.encoder.feature_weight
    if structure is not None:
        return (public_x @ structure.split(weights)[0].T > 0).to(public_x).mean(0)
    if name is None:
        return None
    total, some = public_x.new_zeros(()), public_x[:ENOUGH]
    for x in some:
        rows = jacrev(lambda w, x=x: encoder(w, x))(encoder.own(weights))[name].flatten(0, 1)
        total = total + rows @ x / x.square().sum().clamp_min(torch.finfo(x.dtype).tiny)
    return total / max(1, len(some))


def activation(encoder: SizedEncoder, jacobian: Weights) -> Tensor | None:
    """The W2-part, mean activations ``[m]``, the mean over its c copies; ``None`` for other encoders."""
    if encoder.structure is None:
        return None
    second = encoder.structure.split(jacobian)[1]
    return second.diagonal(dim1=0, dim2=1).mean(1)


def uploaded_units(
    encoder: SizedEncoder, weights: Weights, message: JacobianUpload | FactorUpload
) -> tuple[Tensor, Tensor] | None:
    """The same of an upload under either protocol, as far as the message alone tells."""
    if isinstance(message, JacobianUpload):
        return jacobian_units(encoder, weights, message.jacobian)
    if message.U is not None:
        return message.U, message.U.new_ones(len(message.U))
    if message.direction is None or message.pattern is None:
        return None
    U = torch.outer(message.pattern.to(message.direction), message.direction)
    return U, U.new_ones(len(U))


def received_units(
    encoder: SizedEncoder, weights: Weights, message: JacobianAggregate | FactorAggregate
) -> tuple[Tensor, Tensor] | None:
    """T_k ``[m, d]`` as a client receives it, and how precise; ``None`` where the message does not hold it."""
    if isinstance(message, JacobianAggregate):
        return jacobian_units(encoder, weights, message.grad_C)
    T = message.T if message.T is not None and message.T.ndim == 2 else None
    return None if T is None else (T, T.new_ones(len(T)))
