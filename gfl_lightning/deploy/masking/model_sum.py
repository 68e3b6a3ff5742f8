"""What sites add up of their clients' models: the sum that the server reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gfl_lightning.deploy.evaluation import COLUMNS
from gfl_lightning.engine.evaluation import SPLITS
from gfl_lightning.federated.protocol.messages import Message, ModelUpload
from gfl_lightning.models.encoders.encoder import Weights

DIGITS, BASE = 3, 128
SCORES = len(SPLITS) * COLUMNS


@dataclass(frozen=True, eq=False)
class ModelSum:
    """Σ_k vote_k W_k with Σ_k vote_k, how many models are in it and how many were left out, and sums of metrics.

    >>> one = ModelSum({"W": torch.tensor([1.0, 3.0])}, vote=2.0, trained=2, skipped=1, scores=torch.zeros(SCORES))
    >>> ModelSum.read(one.numbers(), {"W": (2,)}, torch.zeros(1)).average["W"].tolist()
    [0.5, 1.5]

    Counts and sums of metrics grow with a site's rows, beyond what a word of 32 bits holds beside its fraction. So each
    is sent as three digits, whole numbers of 128² and of 128 and the rest, which add up as the numbers do.

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
        return num_weights + DIGITS * (3 + SCORES)

    def numbers(self) -> Tensor:
        """All of it in a row."""
        counts = torch.tensor([self.vote, self.trained, self.skipped], dtype=torch.float64)
        beside = digits(torch.cat([counts, self.scores.flatten()]))
        return torch.cat([*(part.flatten() for part in self.total.values()), beside])

    @classmethod
    def read(cls, numbers: Tensor, shapes: Mapping[str, tuple[int, ...]], like: Tensor) -> ModelSum:
        """From all of it in a row, weights in the type of ``like``."""
        sizes = [math.prod(shape) for shape in shapes.values()]
        *parts, beside = numbers.split([*sizes, DIGITS * (3 + SCORES)])
        counts, scores = from_digits(beside).split([3, SCORES])
        total = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        vote, trained, skipped = counts.tolist()
        return cls({n: part.to(like.dtype) for n, part in total.items()}, vote, round(trained), round(skipped), scores)

    @property
    def average(self) -> Weights:
        """W̃."""
        return {name: part / self.vote for name, part in self.total.items()}


def digits(values: Tensor) -> Tensor:
    """v = p 128² + q 128 + r as all p, all q and all r in a row.

    >>> from_digits(digits(torch.tensor([40000.25, 3.0])) + digits(torch.tensor([100.0, 0.5]))).tolist()
    [40100.25, 3.5]
    """
    high, rest = torch.floor(values / BASE**2), values.remainder(BASE**2)
    return torch.cat([high, torch.floor(rest / BASE), rest.remainder(BASE)])


def from_digits(numbers: Tensor) -> Tensor:
    """What a sum of such rows stands for."""
    high, middle, low = numbers.chunk(DIGITS)
    return (high * BASE + middle) * BASE + low
