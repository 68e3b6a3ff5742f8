"""The numbers that a client receives of the others, and what they would be for a public record alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gfl_lightning.attacks.knowledge import OwnPlace
from gfl_lightning.attacks.units import multiples, received_units
from gfl_lightning.attacks.views import Round, View
from gfl_lightning.federated.protocol.messages import FactorAggregate, JacobianAggregate, RepresentationAggregate
from gfl_lightning.models.encoders.encoder import SizedEncoder

LONG = 12


def aggregates(one: Round) -> Tensor:
    """C_k, A_k and T_k x_k, as far as they were sent, one after the other."""
    representation, factors = one.find(RepresentationAggregate), one.find(FactorAggregate)
    parts = [] if representation is None else [representation.C.flatten()]
    if factors is not None:
        parts += [factors.A] + ([] if factors.cross is None or factors.cross.ndim > 1 else [factors.cross])
    return torch.cat(parts) if parts else torch.empty(0)


def numbers_of(encoder: SizedEncoder, one: Round, x: Tensor, knowledge: OwnPlace) -> Tensor:
    """What records ``x [P, d]`` alone, with weight 1, would make of the same numbers ``[P, f]``."""
    representation, factors, own_x = one.find(RepresentationAggregate), one.find(FactorAggregate), knowledge.own_x
    h = encoder(one.weights, x)
    parts = [] if representation is None else [knowledge.bounded(h, RepresentationAggregate)]
    if factors is not None:
        structure = encoder.structure
        assert structure is not None
        z = x @ structure.split(one.weights)[0].T
        parts.append(torch.relu(z))
        if factors.cross is not None and factors.cross.ndim == 1:
            parts.append((x @ own_x[0])[:, None] * (z > 0).to(x))
    return torch.cat(parts, 1)


def unknown_aggregates(encoder: SizedEncoder, one: Round, knowledge: OwnPlace) -> Tensor:
    """The numbers received, less the part of clients whose records and places are known."""
    seen = aggregates(one)
    if not len(seen) or not len(knowledge.named) or knowledge.disguise:
        return seen
    return seen - knowledge.weights @ knowledge.named.means(numbers_of(encoder, one, knowledge.named.x, knowledge))


class Units(NamedTuple):
    """T_k of a round, or its mean over some.

    Args:
        rows: ``[rows, d]``.
        precision: the inverse standard deviation of noise in each row, where noise on ∇C_k has 1 ``[rows]``.
        on: how much of a record each row holds on average, rows being turned so that it is positive ``[rows]``.
    """

    rows: Tensor
    precision: Tensor
    on: Tensor


def unknown_units(encoder: SizedEncoder, one: Round, knowledge: OwnPlace) -> Units | None:
    """T_k, less Σ Ã_kj s_j x_jᵀ over clients whose records and places are known; ``None`` without T_k.

    Where uploads are bounded, or records randomised, nobody knows what these clients sent, and nothing is taken out.
    """
    sent = one.find(JacobianAggregate) or one.find(FactorAggregate)
    found = None if sent is None else received_units(encoder, one.weights, sent)
    held = None if found is None else multiples(encoder, one.weights, knowledge.public_x)
    if found is None or held is None:
        return None
    rows, precision = found
    x, owner = knowledge.named.x, knowledge.named.owner
    as_it_is = not knowledge.disguise and JacobianAggregate not in knowledge.bound
    if len(x) and as_it_is and encoder.structure is not None:
        s = (x @ encoder.structure.split(one.weights)[0].T > 0).to(x)
        share = (knowledge.weights / torch.bincount(owner))[owner]
        rows = rows - s.T @ (share[:, None] * x)
    return Units(torch.where(held < 0, -1, 1)[:, None] * rows, precision, held.abs())


def units_over_rounds(view: View, knowledge: OwnPlace, rounds: int) -> list[Units]:
    """T_k of the first rounds; where ∇C_k is noisy, means over stretches of `LONG` rounds.

    Noise is new in every round, and patterns hardly change from one to the next.
    """
    noisy = knowledge.std.get(JacobianAggregate, 0.0) > 0
    seen = (unknown_units(view.encoder, one, knowledge) for one in view.first(rounds * LONG if noisy else rounds))
    found = [units for units in seen if units is not None]
    return [_mean(found[at : at + LONG]) for at in range(0, len(found), LONG)] if noisy else found


def _mean(some: list[Units]) -> Units:
    weight = torch.stack([units.precision.square() for units in some])
    total = weight.sum(0)
    rows = (weight[:, :, None] * torch.stack([units.rows for units in some])).sum(0) / total[:, None]
    return Units(rows, total.sqrt(), torch.stack([units.on for units in some]).mean(0))


def public_numbers(encoder: SizedEncoder, one: Round, knowledge: OwnPlace) -> Tensor:
    """What public records alone would make of the same numbers."""
    return numbers_of(encoder, one, knowledge.as_sent, knowledge)


def weight_of_others(view: View, knowledge: OwnPlace) -> float:
    """Σ Ã_kj over direct neighbours where they are known; else about what a row of Ã leaves to others."""
    return float(knowledge.neighbours.sum()) or max(1 - view.own, 0.1)
