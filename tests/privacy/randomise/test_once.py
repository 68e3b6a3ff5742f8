"""A randomised graph: who spends what on which record, and what stays as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.graphs.losses.forward_corrected import ForwardCorrected
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.mechanism import Array, FeatureMechanism
from gfl_lightning.privacy.randomise.multi_bit import MultiBit
from gfl_lightning.privacy.randomise.once import RandomisedOnce, randomised
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.privacy.randomise.randomised_response import flip

GRAPHS = {
    "dnc": DNC(num_clients=40, num_features=6).graph,
    "snc": SNC(num_clients=40, num_features=6, samples_per_client=5).graph,
    "sc": SC(num_clients=20, num_features=6, train_samples=4, val_samples=2, test_samples=3).graph,
}


class Told(FeatureMechanism):
    """Draws nothing, and writes down what each record may spend."""

    def expected(self, x: Array) -> Array:
        return np.full_like(x, -1.0)

    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        return np.full_like(x, epsilon)


def seen(graph: ClientGraph, seed: int = 0, **options: Any) -> ClientGraph:
    return randomised(graph, RandomisedOnce(**options), np.random.default_rng(seed))


def spent(name: str, **options: Any) -> tuple[ClientGraph, torch.Tensor, torch.Tensor]:
    """The graph, which samples have labels in use, and what each spends on its features."""
    graph = GRAPHS[name]
    used = graph.mask(Split.TRAIN) | graph.mask(Split.VAL)
    return graph, used, seen(graph, features=Told(), share_labels=0, **options).x[:, 0].double()


def test_a_client_spends_all_on_its_label_or_all_on_its_features() -> None:
    _, used, epsilon = spent("dnc", epsilon=8.0)
    assert epsilon[used].eq(0).all()
    assert epsilon[~used].eq(8).all()


def test_a_client_divides_its_budget_where_it_is_told_to() -> None:
    graph, used, epsilon = spent("dnc", epsilon=8.0, label_share=0.75)
    assert epsilon[used].eq(2).all()
    assert epsilon[~used].eq(8).all()
    loss = seen(graph, epsilon=8.0, label_share=0.75).loss
    assert loss == ForwardCorrected(flip(6.0, 2))


def test_the_samples_of_a_client_divide_its_budget_and_single_samples_do_not() -> None:
    _, used, epsilon = spent("snc", epsilon=8.0, label_share=0.5)
    torch.testing.assert_close(epsilon, torch.where(used, 4.0 / 5, 8.0 / 5).double())
    graph, used, epsilon = spent("sc", epsilon=8.0, label_share=0.5)
    torch.testing.assert_close(epsilon, torch.where(used, 4.0 / 6, -1.0).double())
    assert seen(graph, epsilon=8.0, label_share=0.5).loss == ForwardCorrected(flip(4.0 / 6, 2))
    graph, used, epsilon = spent("sc", epsilon=8.0, label_share=0.5, unit="sample")
    torch.testing.assert_close(epsilon, torch.where(used, 4.0, -1.0).double())
    assert seen(graph, epsilon=8.0, label_share=0.5, unit="sample").loss == ForwardCorrected(flip(4.0, 2))


def test_a_pooled_client_is_one_record_with_one_label() -> None:
    graph, used, epsilon = spent("snc", epsilon=8.0, label_share=0.5, pooled=True)
    torch.testing.assert_close(epsilon, torch.where(used, 4.0, 8.0).double())
    pooled = seen(graph, epsilon=1.0, pooled=True, features=PrivUnit(), share_labels=0)
    for k in range(graph.num_clients):
        mine = graph.client == k
        assert len(pooled.x[mine].unique(dim=0)) == 1
        assert len(pooled.y[mine & used].unique()) <= 1
    assert not torch.equal(pooled.y[used], graph.y[used])
    exact = seen(graph, epsilon=math.inf, pooled=True, features=PrivUnit(), share_labels=0)
    mean = torch.stack([graph.x[graph.client == k].mean(0) for k in range(graph.num_clients)])
    torch.testing.assert_close(exact.x, torch.nn.functional.normalize(mean)[graph.client])


@pytest.mark.parametrize("name", GRAPHS)
def test_test_labels_and_samples_that_stay_at_home_are_not_touched(name: str) -> None:
    graph = GRAPHS[name]
    home = ~(graph.shared | graph.mask(Split.TRAIN) | graph.mask(Split.VAL))
    made = seen(graph, epsilon=1.0, features=PrivUnit(), share_labels=0, unit="sample")
    test = graph.mask(Split.TEST)
    assert torch.equal(made.y[test], graph.y[test])
    torch.testing.assert_close(made.x[home], torch.nn.functional.normalize(graph.x[home]))
    for column in ("client", "split", "shared", "edge_index"):
        assert torch.equal(getattr(made, column), getattr(graph, column))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("unit", ["client", "sample"])
def test_draws_do_not_depend_on_test_samples_or_test_labels(name: str, unit: str) -> None:
    """What trains without the test sees the very records that are tested."""
    graph = GRAPHS[name]
    options: dict[str, Any] = {"epsilon": 2.0, "label_share": 0.5, "unit": unit, "share_labels": 0}
    keep = graph.shared | ~graph.mask(Split.TEST)
    whole, without = seen(graph, **options), seen(graph.without_test(), **options)
    assert torch.equal(whole.x[keep], without.x)
    assert torch.equal(whole.y[graph.mask(Split.VAL)], without.y[without.mask(Split.VAL)])
    other = replace(graph, y=torch.where(graph.mask(Split.TEST), 1 - graph.y, graph.y))
    again = seen(other, **options)
    assert torch.equal(again.x, whole.x)
    used = ~graph.mask(Split.TEST)
    assert torch.equal(again.y[used], whole.y[used])


def test_every_draw_of_a_source_is_another_one() -> None:
    graph = GRAPHS["dnc"]
    first, second = seen(graph, 0), seen(graph, 1)
    assert torch.equal(first.x, seen(graph, 0).x)
    assert not torch.equal(first.x, second.x)


def test_randomised_labels_are_shared_without_bias() -> None:
    graph = GRAPHS["dnc"]
    made = seen(graph, epsilon=1.0, share_labels=0.5)
    extra = slice(graph.num_samples, None)
    K = len(graph.training_clients)
    shown = made.x[extra, -2:] * K / graph.num_clients / 0.5
    beta = flip(1.0, 2)
    answers = made.y[: graph.num_samples][graph.mask(Split.TRAIN)]
    expected = (torch.nn.functional.one_hot(answers, 2) - 1 / 2) / (1 - beta)
    torch.testing.assert_close(shown, expected.to(shown))
    assert made.x[: graph.num_samples, -2:].eq(0).all()


@pytest.mark.parametrize("mechanism", [PrivUnit(), MultiBit(-0.5, 0.5), GaussianDirection()], ids=repr)
def test_what_is_pooled_is_the_mean(mechanism: FeatureMechanism) -> None:
    """A sum of samples would leave the range of a mechanism that knows one."""
    graph = GRAPHS["snc"]
    exact = seen(graph, epsilon=math.inf, pooled=True, features=mechanism, share_labels=0)
    mean = torch.stack([graph.x[graph.client == k].double().mean(0) for k in range(graph.num_clients)])
    expected = torch.from_numpy(mechanism.expected(mean.numpy()))
    torch.testing.assert_close(exact.x.double(), expected[graph.client], rtol=1e-5, atol=1e-6)


def test_numbers_are_randomised_within_their_range_and_learned_on_its_scale() -> None:
    graph = GRAPHS["dnc"]
    y = torch.rand(graph.num_samples, generator=torch.Generator().manual_seed(0)).double() * 10
    numbers = replace(graph, y=y, num_classes=1, loss=SquaredError())
    made = seen(numbers, epsilon=3.0, labels=Piecewise(0.0, 10.0), share_labels=1.0)
    test, train = graph.mask(Split.TEST), graph.mask(Split.TRAIN)
    assert torch.equal(made.y[: len(y)][test], y[test])
    assert not torch.equal(made.y[: len(y)][train], y[train])
    assert made.loss == SquaredError(centre=5.0, scale=10 / math.sqrt(12))
    assert made.num_features == 6 + 1
    told = replace(numbers, loss=SquaredError().fitted(y[train]))  # a scale that true labels have a part in
    how = RandomisedOnce(epsilon=3.0, labels=Piecewise(0.0, 10.0))
    assert randomised(told, how, np.random.default_rng(0)).loss == made.loss == how.at_home(told).loss


def test_counts_are_refused_whose_loss_knows_no_number_below_0() -> None:
    graph = GRAPHS["dnc"]
    counts = replace(graph, y=torch.ones(graph.num_samples).double(), num_classes=1, loss=Poisson())
    with pytest.raises(InputError, match="loss must be SquaredError or Huber where numbers are randomised"):
        seen(counts, labels=Piecewise(0.0, 10.0))


def test_weights_that_tell_the_label_are_refused() -> None:
    graph = GRAPHS["dnc"]
    weighted = replace(graph, weight=1.0 + graph.y.float())
    with pytest.raises(InputError, match="weights of samples must all be 1 where labels are randomised"):
        seen(weighted)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got 0.0"),
        ({"epsilon": 701.0}, "epsilon must be at most 700, beyond which .*, got 701.0"),
        ({"label_share": 0.0}, "label_share must lie in .0, 1., got 0.0"),
        ({"label_share": 1.5}, "label_share must lie in .0, 1., got 1.5"),
        ({"unit": "graph"}, "unit must be one of client, sample, got 'graph'"),
        ({"unit": "sample", "pooled": True}, "pooled must be false where the unit is sample, got True"),
        ({"share_labels": -1.0}, "share_labels must be finite and at least 0, got -1.0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        RandomisedOnce(**options)


def test_clients_with_several_labels_cannot_be_pooled() -> None:
    with pytest.raises(InputError, match="pooled must be false where a client has samples of several labels, got True"):
        seen(GRAPHS["sc"], pooled=True)


def test_delta_is_the_mechanisms() -> None:
    assert RandomisedOnce().delta == 0
    assert RandomisedOnce(features=GaussianDirection(delta=1e-6)).delta == 1e-6
    assert RandomisedOnce(epsilon=math.inf, features=GaussianDirection()).delta == 0


def test_a_class_that_nobody_answers_does_not_end_training() -> None:
    graph = GRAPHS["dnc"]
    made = seen(graph)
    answers = torch.where(made.mask(Split.TRAIN), 0, made.y)
    federation = Federation(replace(made, y=answers), MLP(()), local=LocalTraining(steps=2))
    state, _ = federation.round(federation.start())
    assert all(weight.isfinite().all() for weight in state.weights.values())
