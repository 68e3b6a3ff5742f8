"""Sums over many samples of a client: none may round by more than what one sample is allowed to move it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protection.clipping import clipped_rows
from gfl_lightning.federated.protection.guard import UploadGuard
from gfl_lightning.federated.protection.private_validation import private_loss
from gfl_lightning.federated.protection.protected_messages import sample_means
from gfl_lightning.federated.protection.step_guard import StepGuard
from gfl_lightning.federated.protocol.messages import RepresentationUpload
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.lattice import ROUNDING
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

pytestmark = pytest.mark.usefixtures("steady_keys")

SAMPLES = 2**14  # so that 1/n is a number


def one_client(x: Tensor, split: Split) -> ClientGraph:
    """A client with many samples of the first of two classes."""
    return ClientGraph.from_edges(
        x=x,
        y=torch.zeros(len(x), dtype=torch.int64),
        client=torch.zeros(len(x), dtype=torch.int64),
        split=torch.full((len(x),), int(split), dtype=torch.int8),
        shared=torch.ones(len(x), dtype=torch.bool),
        edge_index=torch.zeros(2, 0, dtype=torch.int64),
        num_classes=2,
    )


def off(found: Tensor, exact: Any) -> float:
    return float(np.linalg.norm((found.numpy().astype(np.longdouble) - exact).astype(np.float64)))


def positive(d: int) -> Tensor:
    return torch.rand(SAMPLES, d, generator=torch.Generator().manual_seed(5))


def test_a_mean_of_bounded_representations() -> None:
    h, noisy = positive(2), Protection(hidden=Gaussian(1.0, 0.7), unit="sample")
    table = SampleTable.of(one_client(h, Split.NONE))
    guard = UploadGuard(noisy, table, SizedEncoder(MLP((5,)), 2, 2), NoiseKey.fresh())
    (upload, *_) = sample_means(0, h, None, noisy)
    assert isinstance(upload, RepresentationUpload)
    exact = clipped_rows(h, 0.7).numpy().astype(np.longdouble).sum(0) / SAMPLES
    for mean in (guard.mean_h(h, None)[0], upload.h):
        assert off(mean, exact) <= ROUNDING * 2 * 0.7 / SAMPLES


@pytest.mark.parametrize("path", ["primal", "general"])
def test_a_sum_of_bounded_gradients(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At W2 = 0 the residual is ±1/2 and a gradient half of x, both exactly."""
    sums: list[Weights] = []

    def told(self: StepGuard, step: int, gradient: Weights) -> Weights:
        sums.append({name: part.clone() for name, part in gradient.items()})
        return gradient

    monkeypatch.setattr(StepGuard, "noisy", told)
    x, unit = positive(1), Protection(steps=StepNoise(1.0, 1.0), unit="sample")
    alone: dict[str, Any] = {"aggregator": Identity(), "estimator": "v1", "path": path, "protection": unit}
    made = Federation(one_client(x, Split.TRAIN), MLP((1,)), local=LocalTraining(1.0, 1), **alone)
    made.round(made.start({"W1": torch.ones(1, 1), "W2": torch.zeros(2, 1)}))
    (half,) = x.numpy().astype(np.longdouble).mean(0) / 2
    assert off(sums[0]["W2"].flatten(), np.array([-half, half])) <= ROUNDING * 2 / SAMPLES


def test_a_mean_of_bounded_losses() -> None:
    graph = one_client(positive(1), Split.VAL)
    logits, told = 3 * positive(2), Protection(validation=Gaussian(1e-13, 1.0), unit="sample")
    exact = graph.losses(logits, torch.arange(SAMPLES)).clamp(max=1.0).numpy().astype(np.longdouble).mean()
    found = private_loss(graph, logits, told, NoiseKey.fresh().source("validation"))
    assert abs(found - float(exact)) <= ROUNDING / SAMPLES
