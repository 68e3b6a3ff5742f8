"""Clients' own mixes: the best point of a simplex as far as it is trusted, of models that a slow loop trains too."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from graph_builders import random_clients, with_numbers
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.federated.afterwards.fine_tuning import fine_tuned
from gfl_lightning.federated.afterwards.mix import Mix
from gfl_lightning.federated.afterwards.mixing import (
    everybodys,
    explained,
    mixed,
    mixing_weights,
    own_weights,
    trusted_strength,
)
from gfl_lightning.federated.afterwards.mixture import Mixed, Mixture, mixture_of
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.gate import Gate
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.models.personal.shared import Shared


@pytest.fixture
def graph() -> ClientGraph:
    return SC(num_clients=20, num_features=5).graph


def guesses(graph: ClientGraph, number: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(graph.num_samples, 2, generator=draw).softmax(1).double() for _ in range(number)]


def goal(q: Tensor, weights: Tensor, prior: Tensor) -> float:
    """Σ_s log Σ_j w_j q_j + Σ_j prior_j log w_j."""
    return float((q @ weights).log().sum() + torch.xlogy(prior, weights.clamp_min(1e-300)).sum())


@pytest.mark.parametrize("strength", [0.5, 10.0])
def test_weights_are_the_best_point_of_the_simplex(graph: ClientGraph, strength: float) -> None:
    q, owner = explained(graph, guesses(graph))
    centre = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    weights = own_weights(q, owner, 20, centre, strength)
    torch.testing.assert_close(weights.sum(1), torch.ones(20, dtype=torch.float64))
    everybody = everybodys(q)
    points = [
        torch.tensor([a, b, 40 - a - b], dtype=torch.float64) / 40 for a in range(1, 40) for b in range(1, 40 - a)
    ]
    first = torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)
    for point in points:
        assert goal(q, everybody, first) >= goal(q, point, first) - 1e-2
        for client in (0, 7):
            mine = q[owner == client]
            assert goal(mine, weights[client], strength * centre) >= goal(mine, point, strength * centre) - 1e-3


def clients_who_differ(noise: bool) -> tuple[Tensor, Tensor]:
    """q of 2 models on 8 samples of each of 60 clients: right at half of the clients, or of the samples."""
    draw = torch.Generator().manual_seed(0)
    owner = torch.arange(480) % 60
    right = torch.rand(480, generator=draw) < 0.5 if noise else owner % 2 == 0
    return torch.where(right[:, None], torch.tensor([0.8, 0.3]), torch.tensor([0.3, 0.8])).double(), owner


def test_clients_are_trusted_where_they_differ_and_not_where_chance_does() -> None:
    centre = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert trusted_strength(*clients_who_differ(noise=False), centre) == 1
    assert trusted_strength(*clients_who_differ(noise=True), centre) == math.inf


def test_without_rows_or_with_one_model_the_first_counts_alone(graph: ClientGraph) -> None:
    found = guesses(graph)
    blind = replace(graph, split=torch.where(graph.mask(Split.VAL), int(Split.NONE), graph.split))
    for weights in (mixing_weights(blind, found), mixing_weights(graph, found[:1])):
        assert bool((weights[:, 0] == 1).all())
    some = (graph.client == 3) & graph.mask(Split.VAL)
    partly = replace(graph, split=torch.where(some, int(Split.NONE), graph.split))
    q, owner = explained(partly, found)
    centre = everybodys(q)
    torch.testing.assert_close(own_weights(q, owner, 20, centre, 1.0)[3], centre)


def test_identical_models_are_left_as_they_are(graph: ClientGraph) -> None:
    one = guesses(graph, 1)[0]
    found = [one, one.clone(), one.clone()]
    torch.testing.assert_close(mixed(graph, found, mixing_weights(graph, found)), one)


def test_nobodys_test_or_training_label_is_looked_at(graph: ClientGraph) -> None:
    found = guesses(graph)
    other = ~graph.mask(Split.VAL)
    changed = replace(graph, y=torch.where(other, 1 - graph.y, graph.y))
    assert torch.equal(mixing_weights(changed, found), mixing_weights(graph, found))


def test_numbers_heed_the_model_that_is_right(graph: ClientGraph) -> None:
    y = torch.linspace(-1, 1, graph.num_samples, dtype=torch.float64)
    numbers = replace(graph, y=y, num_classes=1, loss=SquaredError())
    weights = mixing_weights(numbers, [(y + 1)[:, None], y[:, None]])
    assert float(weights[:, 1].min()) > 0.9


def slow_steps(prediction: Prediction, W: Weights, lr: float, steps: int, client: int) -> Weights:
    """Steps of one client by autograd on its own mean loss, its neighbours' representations held fixed."""
    graph, encoder = prediction.graph, prediction.model.encoder
    rows = (graph.client == client) & graph.mask(Split.TRAIN)
    terms = prediction.terms_at(W)
    own = float(prediction.propagation.dense()[client, client])
    slope = float(terms.gate[client]) * own + 1 - float(terms.gate[client])
    base = prediction.logits_of(W)[rows].detach() - slope * encoder(W, graph.x)[rows].detach()
    mine = {name: weight.clone() for name, weight in W.items()}
    for _ in range(steps):
        mine = {name: weight.detach().requires_grad_() for name, weight in mine.items()}
        z = base + slope * encoder(mine, graph.x[rows])
        loss = (graph.weight[rows] * graph.loss.losses(z, graph.y[rows])).mean()
        slopes = torch.autograd.grad(loss, list(mine.values()))
        mine = {name: weight - lr * one for (name, weight), one in zip(mine.items(), slopes, strict=True)}
    return {name: weight.detach() for name, weight in mine.items()}


@pytest.mark.parametrize("personal", [Shared(), OwnLevel(0.7), Gate(0.3, 0.8)], ids=str)
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(), Poisson()], ids=str)
def test_fine_tuning_takes_the_steps_of_a_loop(loss: Loss, personal: Personal) -> None:
    graph = random_clients("sc") if not loss.of_numbers else with_numbers(random_clients("sc"), loss)
    prediction = Prediction(graph, MLP((4,)), APPNP(0.3, 3), personal=personal)
    W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
    z = prediction.logits_of(W)
    few, many = fine_tuned(graph, prediction.model.encoder, W, z, prediction.slope(W), 0.1, (2, 5))
    for client in graph.training_clients.tolist():
        for found, steps in ((few, 2), (many, 5)):
            expected = slow_steps(prediction, W, 0.1, steps, client)
            for name in W:
                torch.testing.assert_close(found[name][client], expected[name], rtol=1e-9, atol=1e-11)


def test_without_training_samples_or_finite_steps_a_client_keeps_the_model() -> None:
    graph = random_clients("snc")
    prediction = Prediction(graph, MLP((4,)), APPNP(0.3, 3))
    W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)
    (found,) = fine_tuned(graph, prediction.model.encoder, W, prediction.logits_of(W), prediction.slope(W), 0.1, (3,))
    others = ~torch.isin(torch.arange(graph.num_clients), graph.training_clients)
    assert bool(others.any())
    for name, weight in W.items():
        assert torch.equal(found[name][others], weight.expand_as(found[name][others]))
    (wild,) = fine_tuned(graph, prediction.model.encoder, W, prediction.logits_of(W), prediction.slope(W), 1e200, (9,))
    assert all(bool(weight.isfinite().all()) for weight in wild.values())


@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(), Poisson()], ids=str)
def test_a_mixture_predicts_the_weighted_mean_of_its_models(loss: Loss) -> None:
    graph = random_clients("sc") if not loss.of_numbers else with_numbers(random_clients("sc"), loss)
    personal = OwnLevel(0.7)
    prediction = Prediction(graph, MLP((4,)), APPNP(0.3, 3), personal=personal)
    W = prediction.model.initial_weights(torch.Generator().manual_seed(1), torch.float64)

    def fedavg() -> Federation:
        return Federation(graph, MLP((4,)), Identity(), local=LocalTraining(0.1, 2), personal=personal)

    mixture, sent = mixture_of(prediction, W, Mix(True, (2, 5)), 0.1, 4, fedavg())
    assert mixture.weight.shape == (graph.num_clients, 4)
    assert sent["up"] > 0
    draw = torch.rand(mixture.weight.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weight = draw / draw.sum(1, keepdim=True)
    number = torch.arange(graph.num_clients)
    number[2] = -1
    found = Mixed(prediction, replace(mixture, weight=weight), personal, number)
    z = prediction.logits_of(W)
    models = [graph.loss.link(one) for one in found.outputs(z, W)]
    alone = fedavg()
    torch.testing.assert_close(
        models[1][graph.client != 2], graph.loss.link(alone.logits_of(mixture.fedavg))[graph.client != 2]
    )
    expected = sum(weight[graph.client, j, None] * one for j, one in enumerate(models))
    expected = torch.where(graph.client[:, None] == 2, models[0], expected)
    torch.testing.assert_close(graph.loss.link(found.logits_of(W)), expected, rtol=1e-9, atol=1e-12)
    again = Mixture.of_record(mixture.record())
    torch.testing.assert_close(again.tuned, mixture.tuned)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Mix(steps=(10, 5)), r"steps must rise, as a client trains on from one to the next, got \[10, 5\]"),
        (lambda: Mix(steps=(0,)), "steps must be at least 1, got 0"),
        (lambda: Mix(steps=(1, 2, 3, 4, 5)), "steps must be at most 4 numbers of steps"),
    ],
)
def test_what_cannot_be_is_refused(make: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()  # type: ignore[operator]
