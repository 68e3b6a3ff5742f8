"""From a site's uploads to its contribution to a sum, and from a sum to aggregates: which number lies where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.deploy.masking.columns import SiteColumns, by_site
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.model import Model


@dataclass(frozen=True, eq=False)
class SharedVectors:
    """v_j = (ĥ_j, ∇ĥ_j) as numbers in a row, and Σ_{j≠k} Ã_kj v_j as the messages that client k trains with.

    ∇ĥ_j is the Jacobian itself ``[c |W|]``, or its factors (a_j, U_j) ``[m + m d]``, which are linear in what is summed
    too and c times fewer. With W̄2, which everybody has, T_k = Σ_j Ã_kj U_j and Σ_j Ã_kj a_j are ∇C_k: so the factors
    say the same under either protocol. A linear encoder's are x̄_j alone ``[d]``, and c² times fewer.

    Args:
        model: Ψ_h and Ψ_G.
        by_factors: whether Jacobians go by their factors, which two-layer ReLU and linear encoders without bias have.
        compensated: whether Jacobians are shared; V1 shares none.
    """

    model: Model
    by_factors: bool
    compensated: bool

    @property
    def hidden(self) -> int:
        """Numbers of ĥ_j."""
        return self.model.encoder.num_classes

    @property
    def gradient(self) -> int:
        """Numbers of ∇ĥ_j or of its factors."""
        if not self.compensated:
            return 0
        if not self.by_factors:
            return self.model.encoder.num_classes * self.model.encoder.num_weights
        structure = self.model.encoder.structure
        return self.model.encoder.num_features if structure is None else structure.width * (1 + structure.num_features)

    def contribution(self, uploads: Sequence[Message], clients: Sequence[int], columns: SiteColumns) -> Tensor:
        """Σ_j Ã_kj v_j over a site's clients j: C's of all rows ``[rows, L, c]``, then ∇C's of those that train."""
        h = by_site({u.client: u.h for u in uploads if isinstance(u, RepresentationUpload)}, clients, self.hidden)
        g = by_site(self._gradients(uploads), clients, self.gradient)
        to_hidden = torch.einsum("rlj,jn->rln", columns.coefficients, h)
        to_gradient = torch.einsum("rlj,jn->rln", columns.coefficients[columns.trains], g)
        return torch.cat([to_hidden.flatten(), to_gradient.flatten()])

    def parts(self, columns: SiteColumns) -> tuple[list[slice], list[slice | None]]:
        """Where in such a vector the sums of a site's own clients lie: C_k's, and ∇C_k's of those that train."""
        return self.parts_of_rows(columns.mine.tolist(), columns.trains, columns.hops)

    def parts_of_rows(self, rows: Sequence[int], trains: Tensor, hops: int) -> tuple[list[slice], list[slice | None]]:
        """Where the sums of some rows lie in the vector of all."""
        hidden, gradient = hops * self.hidden, hops * self.gradient
        before = len(trains) * hidden
        place = (trains.long().cumsum(0) - 1).tolist()
        of_hidden = [slice(row * hidden, (row + 1) * hidden) for row in rows]
        of_gradient = [
            slice(before + place[row] * gradient, before + (place[row] + 1) * gradient)
            if trains[row] and gradient
            else None
            for row in rows
        ]
        return of_hidden, of_gradient

    def size(self, trains: Tensor, hops: int) -> int:
        """Numbers of such a vector."""
        return hops * (len(trains) * self.hidden + int(trains.sum()) * self.gradient)

    def aggregates(self, k: int, hidden: Tensor, gradient: Tensor | None, like: Tensor) -> list[Message]:
        """What client k trains with, from its sums, in the type of ``like``."""
        lead = (-1,) if self.model.aggregator.learnable else ()
        C = hidden.to(like).reshape(*lead, self.hidden)
        messages: list[Message] = [RepresentationAggregate(k, C)]
        if gradient is None or not self.compensated:
            return messages
        rows = gradient.to(like).reshape(-1, self.gradient)
        if not self.by_factors:
            return [*messages, JacobianAggregate(k, self._by_weight(rows, lead))]
        structure = self.model.encoder.structure
        if structure is None:
            return [*messages, FactorAggregate(k, rows.reshape(*lead, self.gradient))]
        m, d = structure.width, structure.num_features
        return [*messages, FactorAggregate(k, rows[:, :m].reshape(*lead, m), T=rows[:, m:].reshape(*lead, m, d))]

    def _gradients(self, uploads: Sequence[Message]) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for upload in uploads:
            if isinstance(upload, JacobianUpload):
                found[upload.client] = flattened(upload.jacobian, self.model.encoder.shapes)
            elif isinstance(upload, FactorUpload) and self.model.encoder.structure is None:
                found[upload.client] = upload.activation
            elif isinstance(upload, FactorUpload):
                require(upload.U is not None, "factors", "be whole (U) where sums are masked", "pattern and direction")
                assert upload.U is not None
                found[upload.client] = torch.cat([upload.activation, upload.U.flatten()])
        return found

    def _by_weight(self, rows: Tensor, lead: tuple[int, ...]) -> Weights:
        c, shapes = self.hidden, self.model.encoder.shapes
        parts = rows.split([c * math.prod(shape) for shape in shapes.values()], dim=1)
        return {name: part.reshape(*lead, c, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def flattened(weights: Weights, names: Mapping[str, object]) -> Tensor:
    """All numbers of some weights, in the order of the names."""
    return torch.cat([weights[name].flatten() for name in names])
