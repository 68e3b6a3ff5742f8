"""Predictions without training: those of the federation, on graphs where one exists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients
from protections import protection

from gfl_lightning.checks import InputError
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.noise_key import NoiseKey


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
@pytest.mark.parametrize("aggregator", [APPNP(0.2, 4), SGC(3), Identity(), LearnablePolynomial(0.2, 3)])
@pytest.mark.parametrize("hidden", [(5,), (4, 3)])
def test_a_prediction_agrees_with_the_federation(task: str, aggregator: Any, hidden: tuple[int, ...]) -> None:
    graph, encoder = random_clients(task), MLP(hidden)
    federation = Federation(graph, encoder, aggregator)
    weights = federation.start().weights
    prediction = Prediction(graph, encoder, aggregator)
    for number in (None, 0):
        torch.testing.assert_close(prediction.logits_of(weights, number), federation.logits_of(weights))
        found = prediction.metrics_of(weights, number)["test"]
        assert vars(found) == pytest.approx(vars(federation.metrics_of(weights)["test"]))


def test_a_prediction_protects_as_the_federation_does() -> None:
    graph, encoder, noisy = random_clients("sc"), MLP((5,)), protection(hidden_std=0.5, hidden_clip=0.3)
    key = NoiseKey.fresh()
    federation = Federation(graph, encoder, seed=4, protection=noisy, noise_key=key)
    weights = federation.start().weights
    prediction = Prediction(graph, encoder, APPNP(), noisy, key)
    found = prediction.logits_of(weights, 7)
    torch.testing.assert_close(found, federation.logits_of(weights, 7))
    assert not torch.allclose(found, federation.logits_of(weights))
    torch.testing.assert_close(prediction.logits_of(weights), Prediction(graph, encoder).logits_of(weights))


def test_it_needs_no_training_samples_and_the_same_rows_give_the_same_predictions() -> None:
    graph, encoder = random_clients("sc"), MLP((5,))
    weights = Federation(graph, encoder).start().weights
    nobody = replace(graph, split=torch.full_like(graph.split, int(Split.NONE)))
    found = Prediction(nobody, encoder).logits_of(weights)
    whole = Prediction(graph, encoder)
    torch.testing.assert_close(found, whole.logits_of(weights))
    with pytest.raises(InputError, match="graph must have at least one training sample"):
        Federation(nobody, encoder)


def test_weights_of_other_sizes_are_refused() -> None:
    weights = Prediction(random_clients("sc", d=7), MLP((5,))).model.initial_weights(torch.Generator(), torch.float64)
    sentence = r"weights must have the shapes \{'W1': \(5, 6\), 'W2': \(3, 5\)\}, got \{'W1': \(5, 7\), .*\}"
    with pytest.raises(InputError, match=sentence):
        Prediction(random_clients("sc"), MLP((5,))).logits_of(weights)
