"""Predictions without training: those of the federation, on graphs where one exists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from graph_builders import random_clients

from gfl_lightning.checks import InputError
from gfl_lightning.federated.exchange.predictor import Predictor
from gfl_lightning.federated.federation import Federation
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.privacy.protection import Protection


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
@pytest.mark.parametrize("aggregator", [APPNP(0.2, 4), SGC(3), Identity(), LearnablePolynomial(0.2, 3)])
@pytest.mark.parametrize("hidden", [(5,), (4, 3)])
def test_a_predictor_agrees_with_the_federation(task: str, aggregator: Any, hidden: tuple[int, ...]) -> None:
    graph, encoder = random_clients(task), Encoder(6, 3, hidden)
    federation = Federation(graph, encoder, aggregator)
    weights = federation.start().weights
    predictor = Predictor(graph, encoder, aggregator, Protection(), 0)
    torch.testing.assert_close(predictor.logits_of(weights, 0), federation.logits_of(weights))
    assert vars(predictor.metrics_of(weights, 0)["test"]) == pytest.approx(vars(federation.metrics_of(weights)["test"]))


def test_a_predictor_protects_as_the_federation_does() -> None:
    graph, encoder, protection = random_clients("sc"), Encoder(6, 3, (5,)), Protection(hidden_std=0.5, hidden_clip=0.3)
    federation = Federation(graph, encoder, seed=4, protection=protection)
    weights = federation.start().weights
    found = Predictor(graph, encoder, APPNP(), protection, 4).logits_of(weights, 7)
    torch.testing.assert_close(found, federation.logits_of(weights, 7))
    assert not torch.allclose(found, federation.logits_of(weights))


def test_it_needs_no_training_samples_and_the_same_rows_give_the_same_predictions() -> None:
    graph, encoder = random_clients("sc"), Encoder(6, 3, (5,))
    weights = Federation(graph, encoder).start().weights
    nobody = replace(graph, split=torch.full_like(graph.split, int(Split.NONE)))
    found = Predictor(nobody, encoder, APPNP(), Protection(), 0).logits_of(weights, 0)
    whole = Predictor(graph, encoder, APPNP(), Protection(), 0)
    torch.testing.assert_close(found, whole.logits_of(weights, 0))
    with pytest.raises(InputError, match="graph must have at least one training sample"):
        Federation(nobody, encoder)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(
        InputError, match="graph must have 7 features and 3 classes, as the encoder takes, got ClientGraph"
    ):
        Predictor(random_clients("sc"), Encoder(7, 3), APPNP(), Protection(), 0)
