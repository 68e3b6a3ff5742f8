"""From a site's uploads to its contribution to a sum, and from a sum to aggregates: which number lies where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.deploy.evaluation import COLUMNS
from gfl_lightning.deploy.masking.columns import SiteColumns, by_site
from gfl_lightning.engine.evaluation import SPLITS
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.model import Model


@dataclass(frozen=True, eq=False)
class SharedVectors:
    """v_j = (ĥ_j, ∇ĥ_j) as numbers in a row, and Σ_{j≠k} Ã_kj v_j as the messages that client k trains with.

    ∇ĥ_j is the Jacobian itself ``[c |W|]``, or under the Gram protocol its factors (a_j, U_j) ``[m + m d]``, which are
    linear in what is summed too and c times fewer; a client with one sample sends U = s xᵀ like the others.

    Args:
        model: Ψ_h and Ψ_G.
        protocol: ``jacobian`` or ``gram``.
        compensated: whether Jacobians are shared; V1 shares none.
    """

    model: Model
    protocol: ProtocolName
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
        if self.protocol == "jacobian":
            return self.model.encoder.num_classes * self.model.encoder.num_weights
        structure = self.model.encoder.structure
        assert structure is not None
        return structure.width * (1 + structure.num_features)

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
        flat = gradient.to(like)
        if self.protocol == "gram":
            m = self.gradient_width
            return [*messages, FactorAggregate(k, flat[:m], T=flat[m:].reshape(m, -1))]
        rows = flat.reshape(-1, self.gradient)
        return [*messages, JacobianAggregate(k, self._by_weight(rows, lead))]

    @property
    def gradient_width(self) -> int:
        """m."""
        assert self.model.encoder.structure is not None
        return self.model.encoder.structure.width

    def _gradients(self, uploads: Sequence[Message]) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for upload in uploads:
            if isinstance(upload, JacobianUpload):
                found[upload.client] = flattened(upload.jacobian, self.model.encoder.shapes)
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


SCORES = len(SPLITS) * COLUMNS


@dataclass(frozen=True, eq=False)
class ModelSum:
    """Σ_k vote_k W_k with Σ_k vote_k, how many models are in it and how many were left out, and sums of metrics.

    >>> one = ModelSum({"W": torch.tensor([1.0, 3.0])}, vote=2.0, trained=2, skipped=1, scores=torch.zeros(SCORES))
    >>> ModelSum.read(one.numbers(), {"W": (2,)}, torch.zeros(1)).average["W"].tolist()
    [0.5, 1.5]

    Args:
        total: Σ_k vote_k W_k.
        vote: Σ_k vote_k.
        trained: how many models are in the sum.
        skipped: how many were left out, as they are not finite.
        scores: sums of metrics, of all splits in a row.
    """

    total: Weights
    vote: float
    trained: int
    skipped: int
    scores: Tensor

    @classmethod
    def of(
        cls,
        uploads: Sequence[Message],
        votes: Mapping[int, float],
        skipped: int,
        shapes: Mapping[str, tuple[int, ...]],
        scores: Tensor,
    ) -> ModelSum:
        """Of the clients of one site."""
        models = [upload for upload in uploads if isinstance(upload, ModelUpload)]
        total = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
        for model in models:
            total = {name: part + votes[model.client] * model.weights[name].double() for name, part in total.items()}
        return cls(total, sum(votes[model.client] for model in models), len(models), skipped, scores)

    @staticmethod
    def size(num_weights: int) -> int:
        """Numbers of one for so many weights."""
        return num_weights + 3 + SCORES

    def numbers(self) -> Tensor:
        """All of it in a row."""
        counts = torch.tensor([self.vote, self.trained, self.skipped], dtype=torch.float64)
        return torch.cat([*(part.flatten() for part in self.total.values()), counts, self.scores.flatten()])

    @classmethod
    def read(cls, numbers: Tensor, shapes: Mapping[str, tuple[int, ...]], like: Tensor) -> ModelSum:
        """From all of it in a row, weights in the type of ``like``."""
        sizes = [math.prod(shape) for shape in shapes.values()]
        *parts, counts, scores = numbers.split([*sizes, 3, SCORES])
        total = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        vote, trained, skipped = counts.tolist()
        return cls({n: part.to(like.dtype) for n, part in total.items()}, vote, round(trained), round(skipped), scores)

    @property
    def average(self) -> Weights:
        """W̃."""
        return {name: part / self.vote for name, part in self.total.items()}
