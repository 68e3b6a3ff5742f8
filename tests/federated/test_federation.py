"""Participation, the server's optimizers, divergence and evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from graph_builders import random_clients
from torchmetrics.functional import accuracy as reference_accuracy

from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.planetoid import Planetoid
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.models.encoders.mlp import MLP

SMALL = MLP((5,))
WIDE = MLP((32,))


def test_participation_draws_who_takes_part_and_counts_ages() -> None:
    federation = Federation(random_clients("dnc"), SMALL, participation=Participation(train=0.5, share=3), seed=1)
    state = federation.start()
    last = {int(j): 0 for j in federation.schedule.who_shares(0)}
    trained, shared = set(), set()
    for number in range(12):
        assert len(federation.schedule.who_trains(number)) == 3
        assert len(federation.schedule.who_shares(number)) == 3
        trained.add(tuple(federation.schedule.who_trains(number).tolist()))
        shared.add(tuple(federation.schedule.who_shares(number).tolist()))
        state, report = federation.round(state)
        last |= {int(j): number + 1 for j in federation.schedule.who_shares(number + 1)}
        assert report.trained == 3
        assert report.oldest_upload == number + 1 - min(last.values())
        assert report.never_shared == 10 - len(last)
        assert set(state.history) == set(last.values()) - {number + 1}
    assert len(trained) > 5
    assert len(shared) > 5


def test_full_participation_keeps_no_history() -> None:
    federation = Federation(random_clients("dnc"), SMALL)
    state, report = federation.round(federation.start())
    assert (report.oldest_upload, report.never_shared, state.history) == (0, 0, {})


def test_a_client_never_seen_contributes_nothing() -> None:
    graph = random_clients("dnc")
    federation = Federation(graph, SMALL, participation=Participation(share=2), seed=3)
    state = federation.start()
    silent = sorted(set(range(10)) - set(federation.schedule.who_shares(0).tolist()))
    k = silent[0]
    A = federation._near.A.dense()
    shared = federation.schedule.who_shares(0)
    h = SMALL(state.weights, graph.x)
    expected = A[k, k] * h[k] + A[k, shared] @ h[shared]
    torch.testing.assert_close(federation.logits(state)[k], expected)


def test_server_momentum_is_sgd_on_the_mean_update() -> None:
    plain = Federation(random_clients("dnc"), SMALL)
    federation = Federation(random_clients("dnc"), SMALL, server=Momentum(0.5, 0.8))
    state = federation.start()
    parameters = {name: weight.clone().requires_grad_() for name, weight in state.weights.items()}
    optimizer = torch.optim.SGD(list(parameters.values()), lr=0.5, momentum=0.8)
    for _ in range(4):
        average, _ = plain.round(plain.start(state.weights))
        for name, parameter in parameters.items():
            parameter.grad = state.weights[name] - average.weights[name]
        optimizer.step()
        state, _ = federation.round(state)
        for name, parameter in parameters.items():
            torch.testing.assert_close(state.weights[name], parameter.detach())


def test_fedadam_follows_its_recursion() -> None:
    plain = Federation(random_clients("dnc"), SMALL)
    server = FedAdam(0.1, 0.7, 0.9, 0.01)
    federation = Federation(random_clients("dnc"), SMALL, server=server)
    state = federation.start()
    m, v, W = torch.zeros(5, 6).double(), torch.zeros(5, 6).double(), state.weights["W1"]
    for _ in range(4):
        average, _ = plain.round(plain.start(state.weights))
        delta = average.weights["W1"] - W
        m, v = 0.7 * m + 0.3 * delta, 0.9 * v + 0.1 * delta * delta
        W = W + 0.1 * m / (v.sqrt() + 0.01)
        state, _ = federation.round(state)
        torch.testing.assert_close(state.weights["W1"], W)


def with_isolated_giant() -> ClientGraph:
    """A graph whose client 0 has no neighbour, features that overflow its update, and a label it is sure to miss."""
    graph = random_clients("dnc", dtype=torch.float32)
    keep = (graph.edge_index != 0).all(0)
    x = graph.x.clone()
    x[0] *= 1e15
    y = graph.y.clone()
    y[0] = WIDE(Federation(graph, WIDE).start().weights, x[0]).argmin()
    return ClientGraph.from_edges(
        x=x,
        y=y,
        client=graph.client,
        split=graph.split,
        shared=graph.shared,
        edge_index=graph.edge_index[:, keep],
        num_classes=3,
    )


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_a_client_that_diverges_is_left_out_and_counted(path: str) -> None:
    graph = with_isolated_giant()
    federation = Federation(graph, WIDE, local=LocalTraining(0.3, 5), path=path)  # type: ignore[arg-type]
    state = federation.start()
    after, report = federation.round(state)
    assert report.skipped == 1
    split = graph.split.clone()
    split[0] = int(Split.NONE)
    without = Federation(replace(graph, split=split), WIDE, local=LocalTraining(0.3, 5), path="dual")
    expected, other = without.round(without.start(state.weights))
    assert other.skipped == 0
    torch.testing.assert_close(after.weights, expected.weights)


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
@pytest.mark.parametrize("lr", [1e3, 1e5])
def test_a_loss_that_explodes_ends_training_on_every_path(path: str, lr: float) -> None:
    graph = random_clients("dnc", dtype=torch.float32)
    federation = Federation(graph, SMALL, local=LocalTraining(lr, 5), path=path)  # type: ignore[arg-type]

    def train() -> None:
        state = federation.start()
        for _ in range(30):
            state, report = federation.round(state)
            assert report.metrics["train"].loss < 1e6

    with pytest.raises(DivergedError, match=r"lr must be small enough for .* in round \d+"):
        train()


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_where_all_diverge_the_last_good_state_survives(path: str) -> None:
    graph = random_clients("dnc", dtype=torch.float32)
    federation = Federation(graph, SMALL, local=LocalTraining(0.3, 5), path=path)  # type: ignore[arg-type]
    good, _ = federation.round(federation.start())
    with pytest.raises(
        DivergedError, match=r"lr must be small enough for finite updates, got 1e\+30: in round 2"
    ) as stop:
        federation.round(good, lr=1e30)
    assert stop.value.state is good
    federation.round(stop.value.state)


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_evaluation_of_the_average_model(task: str, share: float) -> None:
    graph = random_clients(task)
    federation = Federation(graph, SMALL, participation=Participation(share=share), local=LocalTraining(0.3, 3))
    state, report = federation.round(federation.start())
    state, report = federation.round(state)
    assert state.exchange is not None
    A, h = federation._near.A.dense(), SMALL(state.weights, graph.x)
    uploaded = state.exchange.uploaded_h
    for part in (Split.TRAIN, Split.VAL, Split.TEST):
        losses, hits, clients = [], [], []
        for s in graph.mask(part).nonzero().flatten().tolist():
            k = int(graph.client[s])
            C = sum(A[k, j] * uploaded[j] for j in range(10) if j != k)
            logits = A[k, k] * h[s] + C
            losses.append(-torch.log_softmax(logits, 0)[graph.y[s]].item())
            hits.append(logits)
            clients.append(k)
        metrics = report.metrics[part.name.lower()]
        label = graph.y[graph.mask(part)]
        expected = reference_accuracy(torch.stack(hits), label, task="multiclass", num_classes=3, average="micro")
        assert metrics.loss == pytest.approx(sum(losses) / len(losses), rel=1e-9)
        assert metrics.accuracy == pytest.approx(float(expected), abs=1e-6)
        per_client, right = [], []
        for k in sorted(set(clients)):
            rows = [i for i, owner in enumerate(clients) if owner == k]
            per_client.append(sum(losses[i] for i in rows) / len(rows))
            mean = torch.stack([hits[i] for i in rows]).mean(0)
            labels = {int(label[i]) for i in rows}
            single = [float(hits[i].argmax() == label[i]) for i in rows]
            right.append(float(int(mean.argmax()) in labels) if len(labels) == 1 else sum(single) / len(single))
        assert metrics.client_loss == pytest.approx(sum(per_client) / len(per_client), rel=1e-9)
        assert metrics.client_accuracy == pytest.approx(sum(right) / len(right), rel=1e-9)


def test_evaluation_makes_no_second_pass_over_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(random_clients("sc"), SMALL)
    state = federation.start()
    passes = []
    times = type(federation.prediction.table.features).times
    monkeypatch.setattr(
        type(federation.prediction.table.features), "times", lambda self, W: passes.append("x") or times(self, W)
    )
    encode = MLP.__call__
    monkeypatch.setattr(MLP, "__call__", lambda self, W, x: passes.append("encoder") or encode(self, W, x))
    state, report = federation.round(state)
    assert federation.evaluator(federation.logits(state)) == report.metrics
    assert passes == ["x"]


def test_many_samples_vote_for_their_clients_label() -> None:
    federation = Federation(SNC(num_clients=100).graph, local=LocalTraining(0.2, 10))
    state = federation.start()
    for _ in range(100):
        state, report = federation.round(state)
    metrics = report.metrics["test"]
    assert metrics.client_accuracy >= metrics.accuracy > 0.8


def test_full_cora_reaches_its_accuracy_within_a_hundred_rounds(planetoid_root: Path) -> None:
    federation = Federation(Planetoid("Cora", planetoid_root).graph, local=LocalTraining(0.5, 10))
    state, best = federation.start(), (float("inf"), 0.0, 0)
    for _ in range(100):
        state, report = federation.round(state)
        best = min(best, (report.metrics["val"].loss, report.metrics["test"].accuracy, report.round))
    assert best[1] >= 0.825, best


def test_a_start_and_a_report_belong_to_nobody_else() -> None:
    federation = Federation(random_clients("dnc"), MLP([5]))  # type: ignore[arg-type]
    weights = federation.start().weights
    state = federation.start(weights)
    weights["W1"].zero_()
    assert bool(state.weights["W1"].any())
    _, report = federation.round(state)
    with pytest.raises(TypeError):
        report.traffic.up["ModelUpload"] = -1  # type: ignore[index]


def test_a_batch_larger_than_a_clients_data_means_all_of_it() -> None:
    found = []
    for batch_size in (None, 5, 100):
        federation = Federation(random_clients("sc"), SMALL, local=LocalTraining(0.3, 3, batch_size))
        state, _ = federation.round(federation.start())
        found.append(state.weights["W1"])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("task", ["dnc", "sc"])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_bits_do_not_depend_on_how_weights_lie_in_memory(task: str, share: float) -> None:
    """A resumed run reads its weights from a file, row by row; the engine may hold them column by column."""
    for seed in range(5):
        graph = random_clients(task, N=20, d=40, seed=seed, dtype=torch.float32)
        federation = Federation(graph, MLP((16,)), participation=Participation(0.5, share), seed=seed)
        state = federation.start()
        for _ in range(4):
            state, _ = federation.round(state)
        rows = {name: weight.clone(memory_format=torch.contiguous_format) for name, weight in state.weights.items()}
        other = replace(state, weights=rows, exchange=None)
        for _ in range(4):
            state, _ = federation.round(state)
            other, _ = federation.round(other)
        for name, weight in state.weights.items():
            assert torch.equal(weight, other.weights[name])


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    def run(seed: int) -> torch.Tensor:
        options = {"local": LocalTraining(0.3, 3, 2), "participation": Participation(0.5, 0.5)}
        federation = Federation(random_clients("sc"), SMALL, seed=seed, **options)  # type: ignore[arg-type]
        state = federation.start()
        for _ in range(3):
            state, _ = federation.round(state)
        return state.weights["W1"]

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))
