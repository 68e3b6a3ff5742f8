"""Personalised PageRank whose depth is chosen by validation, on the very records that it will aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP


@dataclass(frozen=True)
class ChosenAPPNP(Aggregator):
    """The APPNP(α, M), of all pairs offered, whose trial of a few rounds reaches the lowest validation loss.

    How far representations must travel depends on the graph: on a sparse one forty hops average noise away, on a small
    dense one they mix everything. A fit from round 0 tries each pair, from the same weights and on the same records,
    takes the best and trains with it from the start. On randomised records that is post-processing and costs no
    privacy; where uploads are protected instead, each trial would upload, and it is refused. Trials are rounds that a
    deployed federation would have to make.

    >>> [(one.alpha, one.M) for one in ChosenAPPNP(alphas=(0.1,), depths=(2, 5)).candidates]
    [(0.1, 2), (0.1, 5)]

    Args:
        alphas: the values of α that are offered.
        depths: the values of M.
        rounds: of a trial, or those of the fit where it makes fewer.
    """

    alphas: tuple[float, ...] = (0.01,)
    depths: tuple[int, ...] = (3, 5, 10, 20, 40)
    rounds: int = 25

    def __post_init__(self) -> None:
        object.__setattr__(self, "alphas", tuple(self.alphas))
        object.__setattr__(self, "depths", tuple(self.depths))
        require(len(self.alphas) > 0, "alphas", "offer at least one value", self.alphas)
        require(len(self.depths) > 0, "depths", "offer at least one value", self.depths)
        require_count("rounds", self.rounds)
        super().__post_init__()

    @property
    def candidates(self) -> tuple[APPNP, ...]:
        """Every pair, in the order of ties: the first α and the smallest depth win."""
        return tuple(APPNP(alpha, M) for alpha in self.alphas for M in self.depths)

    @property
    def gamma(self) -> Tensor:
        """Those of the first pair, as long as none has been chosen."""
        return self.candidates[0].gamma
