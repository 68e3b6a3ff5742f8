"""The encoder against torch's own layers, and its start."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("hidden", [(), (7,), (7, 5)])
def test_is_torchs_mlp(hidden: tuple[int, ...], bias: bool) -> None:
    encoder = SizedEncoder(MLP(hidden, "tanh", bias) if hidden else MLP((), bias=bias), 4, 3)
    weights = encoder.initial_weights(torch.Generator().manual_seed(0), torch.float64)
    widths = (4, *hidden, 3)
    layers: list[nn.Module] = []
    for i in range(len(widths) - 1):
        layer = nn.Linear(widths[i], widths[i + 1], bias=bias).double()
        with torch.no_grad():
            layer.weight.copy_(weights[f"W{i + 1}"])
            if bias:
                layer.bias.copy_(weights[f"b{i + 1}"])
        layers += [layer, nn.Tanh()]
    x = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(encoder(weights, x), nn.Sequential(*layers[:-1])(x))


def test_starts_from_glorot_and_zero_bias() -> None:
    encoder = SizedEncoder(MLP((300,), bias=True), 200, 3)
    weights = encoder.initial_weights(torch.Generator().manual_seed(0))
    bound = math.sqrt(6 / 500)
    assert float(weights["W1"].abs().max()) <= bound
    assert float(weights["W1"].std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not bool(weights["b1"].any())
    again = encoder.initial_weights(torch.Generator().manual_seed(0))
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_only_the_papers_encoder_has_the_structure() -> None:
    assert MLP().structure(4, 3)
    assert MLP((9,)).structure(4, 3)
    assert not MLP((9, 9)).structure(4, 3)
    assert not MLP(activation="tanh").structure(4, 3)
    assert not MLP(bias=True).structure(4, 3)


def test_learnable_polynomial_starts_at_appnp() -> None:
    assert torch.equal(LearnablePolynomial(0.3, 4).gamma, APPNP(0.3, 4).gamma)
    assert LearnablePolynomial().learnable
    assert not APPNP().learnable
