"""Batches: without replacement within a pass, every pass in a new order, the same for the same seed."""

from __future__ import annotations

import torch
from graph_builders import random_clients
from hypothesis import given, settings
from hypothesis import strategies as st

from gfl_lightning.engine.training_set import TrainingSet, draw_batches
from gfl_lightning.graphs.client_graph import Split


def test_training_set_lists_each_clients_own_samples() -> None:
    graph = random_clients("sc")
    training = TrainingSet.of(graph)
    for k, client in enumerate(training.clients.tolist()):
        rows = training.sample[k][training.present[k]]
        assert rows.tolist() == ((graph.client == client) & graph.mask(Split.TRAIN)).nonzero().flatten().tolist()
        assert int(training.counts[k]) == len(rows)
        assert torch.equal(training.target[k][training.present[k]].argmax(1), graph.y[rows])


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_pass_meets_every_sample_once(batch_size: int, steps: int, seed: int) -> None:
    training = TrainingSet.of(random_clients("sc"))
    batches = draw_batches(training, batch_size, steps, 0, seed, torch.float64)
    n = training.sample.shape[1]
    for k, count in enumerate(training.counts.tolist()):
        weights = [
            (batches.step_weight(step, n) if n > 1 else torch.ones(len(training), 1))[k] for step in range(steps)
        ]
        per_pass = -(-count // min(batch_size, n))
        for weight in weights:
            assert abs(float(weight.sum()) - 1) < 1e-12
            assert not bool(weight[count:].any())
        for start in range(0, steps - per_pass + 1, per_pass):
            met = torch.stack(weights[start : start + per_pass]) > 0
            assert met[:, :count].sum(0).tolist() == [1] * count


def test_passes_go_on_from_round_to_round_and_orders_change() -> None:
    training = TrainingSet.of(random_clients("sc"))
    whole = draw_batches(training, 2, 12, 0, 7, torch.float64)
    assert whole.place is not None
    parts = [draw_batches(training, 2, 3, first, 7, torch.float64) for first in (0, 3, 6, 9)]
    assert torch.equal(torch.cat([p.place for p in parts if p.place is not None]), whole.place)
    longest = int(training.counts.argmax())
    per_pass = -(-int(training.counts.max()) // 2)
    orders = {tuple(whole.place[i : i + per_pass, longest].flatten().tolist()) for i in range(0, 12, per_pass)}
    assert len(orders) > 1
    other = draw_batches(training, 2, 12, 0, 8, torch.float64)
    assert other.place is not None
    assert not torch.equal(other.place, whole.place)
