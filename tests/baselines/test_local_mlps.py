"""Clients that train alone against one nn.Sequential per client, and what each of them keeps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from baseline_builders import clients, same_bits, with_losses_weighted
from graph_builders import random_clients
from torch import Tensor, nn
from torch.nn import functional as F

from gfl_lightning.baselines.local_mlps import LocalModels, LocalState, initial_weights
from gfl_lightning.checks import InputError
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import Report
from gfl_lightning.engine.evaluation import ClassMetrics
from gfl_lightning.engine.training_set import TrainingSet, draw_batches
from gfl_lightning.graphs.client_graph import ClientGraph, Split


def without_validation(graph: ClientGraph, client: int) -> ClientGraph:
    split = torch.where((graph.client == client) & graph.mask(Split.VAL), int(Split.TEST), graph.split)
    return replace(graph, split=split)


def mean_loss(graph: ClientGraph, model: nn.Module, rows: Tensor) -> Tensor:
    return (graph.weight[rows] * F.cross_entropy(model(graph.x[rows]), graph.y[rows], reduction="none")).mean()


@pytest.mark.parametrize("losses_weighted", [False, True])
@pytest.mark.parametrize("batch_size", [2, None])
def test_local_models_are_independent(batch_size: int | None, losses_weighted: bool) -> None:
    """One model per client on the batches of the same seed; each keeps its best round, or its last without any."""
    rounds, graph = 40, without_validation(clients(), 4)
    graph = with_losses_weighted(graph) if losses_weighted else graph
    engine = LocalModels(graph, 8, lr=0.5, batch_size=batch_size, seed=2)
    state, best = engine.start(), Best()
    start, training = state.weights, TrainingSet.of(graph)
    assert not torch.equal(start["W1"][0], start["W1"][1])
    lowest_mean = (math.inf, 0)
    for number in range(1, rounds + 1):
        state, report = engine.round(state)
        best = engine.choose(best, state, report)
        lowest_mean = min(lowest_mean, (report.metrics["val"].loss, number))
    last, kept, rounds_of_best = {}, {}, {}
    for k in range(10):
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
        model.load_state_dict({"0.weight": start["W1"][k], "2.weight": start["W2"][k]})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        val = ((graph.client == k) & graph.mask(Split.VAL)).nonzero().flatten()
        lowest = math.inf
        for number in range(rounds):
            drawn = draw_batches(training, batch_size, 1, number, 2, torch.float32)
            own = training.sample[k, : int(training.counts[k])]
            rows = own if drawn.place is None else training.sample[k, drawn.place[0, k]][drawn.weight[0, k] > 0]
            optimizer.zero_grad()
            mean_loss(graph, model, rows).backward()
            optimizer.step()
            loss = mean_loss(graph, model, val).item() if len(val) else -number
            if loss < lowest:
                lowest, rounds_of_best[k] = loss, number
                kept[k] = [parameter.detach().clone() for parameter in model.parameters()]
        last[k] = [parameter.detach() for parameter in model.parameters()]
        if len(val):
            assert float(best.client_loss[k]) == pytest.approx(lowest, rel=1e-4)
            assert float(state.client_loss[k]) == pytest.approx(mean_loss(graph, model, val).item(), rel=1e-4)
    assert len(set(rounds_of_best.values())) > 2
    assert rounds_of_best[4] == rounds - 1
    assert bool(state.client_loss[4].isnan())
    for layer, name in enumerate(("W1", "W2")):
        for found, models in ((state.weights, last), (best.weights, kept)):
            expected = torch.stack([models[k][layer] for k in range(10)])
            torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-5)
    assert (best.val_loss, best.round) == lowest_mean
    assert engine.metrics_of(best.weights)["val"].loss <= best.val_loss


def seen(engine: LocalModels, number: int, losses: dict[int, float], mean: float) -> tuple[LocalState, Report]:
    """A state whose weights all equal its round, with the losses of some clients."""
    weights = {name: torch.full(shape, float(number)) for name, shape in engine.shapes.items()}
    client_loss = torch.tensor([losses.get(k, math.nan) for k in range(engine.graph.num_clients)])
    return LocalState(number, weights, client_loss), Report(number, {"val": ClassMetrics(mean, mean, 0, 0)})


def test_every_client_keeps_its_own_best() -> None:
    """Clients 3, 4 and 8 have validation samples; client 4's loss is no number at first."""
    engine = LocalModels(clients(), 4)
    assert torch.unique(engine.graph.client[engine.graph.mask(Split.VAL)]).tolist() == [3, 4, 8]
    best = Best()
    for number, losses, mean in (
        (1, {3: 0.5, 4: math.nan, 8: 1.0}, 0.9),
        (2, {3: 0.6, 4: 0.8, 8: 1.0}, 0.7),
        (3, {3: 0.4, 4: 0.9, 8: 1.0}, 0.8),
    ):
        best = engine.choose(best, *seen(engine, number, losses, mean))
    assert (best.round, best.val_loss) == (2, 0.7)
    for weight in best.weights.values():
        assert weight[:, 0, 0].tolist() == [3, 3, 3, 3, 2, 3, 3, 3, 1, 3]
    assert best.client_loss[[3, 4, 8]].tolist() == pytest.approx([0.4, 0.8, 1.0])


def test_without_any_validation_the_last_round_is_kept() -> None:
    graph = clients()
    graph = replace(graph, split=torch.where(graph.mask(Split.VAL), int(Split.TEST), graph.split))
    engine = LocalModels(graph, 4)
    state, best = engine.start(), Best()
    for _ in range(3):
        state, report = engine.round(state)
        best = engine.choose(best, state, report)
    assert same_bits(best.weights, state.weights)
    assert (best.round, best.val_loss) == (0, math.inf)


def test_one_client_does_not_see_another() -> None:
    """Other samples at client 3 change its model and no other."""
    graph = clients()
    own = graph.client == 3
    other = replace(graph, x=torch.where(own[:, None], -graph.x, graph.x))
    ends = []
    for data in (graph, other):
        engine = LocalModels(data, 8)
        state = engine.start()
        for _ in range(5):
            state, _ = engine.round(state)
        ends.append(state.weights)
    differs = torch.stack([(ends[0][name] != ends[1][name]).flatten(1).any(1) for name in ends[0]])
    assert differs.tolist() == [[k == 3 for k in range(10)]] * 2


def test_the_start_is_known_before_the_data() -> None:
    engine = LocalModels(clients(), 8, seed=7)
    weights = initial_weights(6, 3, 10, 8, 7)
    assert same_bits(engine.start().weights, weights)
    assert engine.shapes == {"W1": (10, 8, 6), "W2": (10, 3, 8)}


def test_refusals() -> None:
    few = random_clients("dnc", N=14)
    text = "graph must give every client a training sample, as each trains a model of its own, got 'none for client 6'."
    for make, expected in (
        (lambda: LocalModels(few), text),
        (lambda: LocalModels(clients(), 0), "hidden must be at least 1, got 0."),
        (lambda: LocalModels(clients(), lr=-1.0), "lr must be positive and finite, got -1.0."),
        (lambda: LocalModels(clients(), batch_size=0), "batch_size must be at least 1, got 0."),
        (lambda: LocalModels(clients(), seed=-1), "seed must be at least 0, got -1."),
        (lambda: initial_weights(6, 3, 0), "num_clients must be at least 1, got 0."),
        (lambda: initial_weights(6, 3, 5, seed=-1), "seed must be at least 0, got -1."),
    ):
        with pytest.raises(InputError) as refusal:
            make()
        assert str(refusal.value) == expected
