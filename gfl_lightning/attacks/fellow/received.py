"""The numbers that a client receives of the others, and what they would be for a public record alone."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.views import Round, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, RepresentationAggregate
from gfl_lightning.models.encoders.encoder import SizedEncoder


def aggregates(one: Round) -> Tensor:
    """C_k, A_k and T_k x_k, as far as they were sent, one after the other."""
    representation, factors = one.find(RepresentationAggregate), one.find(FactorAggregate)
    parts = [] if representation is None else [representation.C.flatten()]
    if factors is not None:
        parts += [factors.A] + ([] if factors.cross is None or factors.cross.ndim > 1 else [factors.cross])
    return torch.cat(parts) if parts else torch.empty(0)


def numbers_of(encoder: SizedEncoder, one: Round, x: Tensor, own_x: Tensor) -> Tensor:
    """What records ``x [P, d]`` alone, with weight 1, would make of the same numbers ``[P, f]``."""
    representation, factors = one.find(RepresentationAggregate), one.find(FactorAggregate)
    parts = [] if representation is None else [encoder(one.weights, x)]
    if factors is not None:
        structure = encoder.structure
        assert structure is not None
        z = x @ structure.split(one.weights)[0].T
        parts.append(torch.relu(z))
        if factors.cross is not None and factors.cross.ndim == 1:
            parts.append((x @ own_x[0])[:, None] * (z > 0).to(x))
    return torch.cat(parts, 1)


def public_numbers(encoder: SizedEncoder, one: Round, knowledge: OwnPlace) -> Tensor:
    """The same of public records."""
    return numbers_of(encoder, one, knowledge.public_x, knowledge.own_x)


def weight_of_others(view: View, knowledge: OwnPlace) -> float:
    """Σ Ã_kj over direct neighbours where they are known; else about what a row of Ã leaves to others."""
    return float(knowledge.neighbours.sum()) or max(1 - view.own, 0.1)
