"""Intervals that hold the truth as often as they say, by split conformal prediction.

The score of a sample is |y − ŷ| / s(ŷ), with s = 1, or √ŷ for counts. If new samples come as the validation samples
came, the interval ŷ ± q s(ŷ) holds y with probability at least ``level``, q being the ⌈(n + 1) level⌉-th smallest of n
validation scores, whatever the model. That is over all clients together: it need not hold at each. Choosing the best
round by the same samples makes it a little too narrow.
"""

from __future__ import annotations

import math

from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.numbers import NumberLoss

LEVEL = 0.9


def half_width(graph: ClientGraph, prediction: Tensor, level: float = LEVEL) -> float:
    """q from the predictions of all samples ``[S, 1]``; infinite where there are too few validation samples.

    >>> import torch
    >>> from gfl_lightning.reports.conformal import interval
    >>> from gfl_lightning.graphs.losses.squared_error import SquaredError
    >>> interval(SquaredError(), torch.tensor([5.0]), 2.0)
    (tensor([3.]), tensor([7.]))
    """
    require(0 < level < 1, "level", "lie between 0 and 1", level)
    loss = graph.loss
    assert isinstance(loss, NumberLoss)
    rows = graph.mask(Split.VAL)
    predicted = prediction[rows, 0].double()
    score = ((graph.y[rows] - predicted).abs() / loss.spread(predicted)).sort().values
    rank = math.ceil((len(score) + 1) * level)
    return float(score[rank - 1]) if rank <= len(score) else math.inf


def interval(loss: NumberLoss, predicted: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """ŷ − q s(ŷ) and ŷ + q s(ŷ), neither below the least number that a label can be."""
    reach = q * loss.spread(predicted)
    return (predicted - reach).clamp_min(loss.least), predicted + reach
