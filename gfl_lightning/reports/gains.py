"""What one model gains over another on the same samples, with the interval that differences between clients leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.stats import t as student
from torch import Tensor

from gfl_lightning.graphs.client_graph import ClientGraph

SURE = 0.975


@dataclass(frozen=True)
class Gain:
    """A mean difference in loss, positive where the first model is better, and half of its 95 % interval.

    >>> str(Gain(0.0123, 0.004)), Gain(0.0123, 0.004).is_sure, Gain(0.0123, math.nan).is_sure
    ('0.0123 ± 0.0040', True, False)
    """

    mean: float
    half_width: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.half_width

    def __str__(self) -> str:
        digits = 4 if abs(self.mean) < 1 else 3 if abs(self.mean) < 10 else 1
        width = f" ± {self.half_width:.{digits}f}" if math.isfinite(self.half_width) else ""
        return f"{self.mean:.{digits}f}{width}".replace("-", "−")


def loss_name(graph: ClientGraph) -> str:
    """What :func:`sample_losses` are called."""
    return "absolute error" if graph.loss.of_numbers else "log loss"


def sample_losses(graph: ClientGraph, prediction: Tensor, rows: Tensor) -> Tensor:
    """Log loss, or absolute error where labels are numbers, of some samples from predictions of all ``[S, c]``."""
    y, found = graph.y[rows].cpu(), prediction[rows].double().cpu()
    if graph.loss.of_numbers:
        return (found[:, 0] - y.double()).abs()
    return -found.gather(1, y[:, None])[:, 0].clamp_min(1e-15).log()


def gain_over(graph: ClientGraph, mine: Tensor, theirs: Tensor, rows: Tensor) -> Gain:
    """The mean over samples of d = their loss − mine, with an interval for samples that come client by client.

    With D_k = Σ_{s of k} (d_s − d̄), the standard error is √(K/(K−1) Σ_k D_k²) / n.
    """
    d = sample_losses(graph, theirs, rows) - sample_losses(graph, mine, rows)
    if not len(d):
        return Gain(math.nan, math.nan)
    _, place = graph.client[rows].cpu().unique(return_inverse=True)
    K, mean = int(place.max()) + 1, d.mean()
    of_clients = d.new_zeros(K).index_add_(0, place, d - mean)
    error = math.sqrt(K / (K - 1) * float(of_clients.square().sum())) / len(d) if K > 1 else math.nan
    return Gain(float(mean), float(student.ppf(SURE, K - 1)) * error if K > 1 else math.nan)


def client_gains(graph: ClientGraph, mine: Tensor, theirs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of d over each client's samples ``[N]``, nan without any, and half of its own 95 % interval ``[N]``."""
    d = sample_losses(graph, theirs, rows) - sample_losses(graph, mine, rows)
    owner, N = graph.client[rows].cpu(), graph.num_clients
    n = torch.bincount(owner, minlength=N).double()
    mean = d.new_zeros(N).index_add_(0, owner, d) / n
    square = d.new_zeros(N).index_add_(0, owner, (d - mean[owner]).square())
    error = (square / (n - 1) / n).sqrt()
    reach = torch.from_numpy(student.ppf(SURE, (n - 1).clamp_min(1).numpy()))
    return mean, torch.where(n > 1, reach * error, math.nan)
