"""The echo of shared labels: training rows read labels as predicted rows do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from lit_types import Given
from oracle import dense_powers

from gfl_lightning.federated.afterwards.mix import Mix
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.graphs.propagation import Propagation, normalized_edges, propagation
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.echo import echoes
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.linear import Linear

FAR = APPNP(0.01, 20)
SOURCE = np.random.default_rng(0)


def label_sums(graph: ClientGraph, aggregator: APPNP, records: SharedLabels) -> torch.Tensor:
    """What a linear model that reads labels alone makes of each sample ``[samples, c]``."""
    seen = records.heard(records.of(graph, SOURCE), aggregator.gamma)
    W = torch.cat([torch.zeros(2, graph.num_features), torch.eye(2)], 1).to(graph.x)
    federation = Federation(seen, Linear(), aggregator, local=LocalTraining(steps=1))
    return federation.logits_of({"W": W})[: graph.num_samples]


def complete(graph: ClientGraph) -> ClientGraph:
    """Everybody knows everybody."""
    N = graph.num_clients
    pairs = torch.combinations(torch.arange(N)).T
    return replace(graph, edge_index=torch.cat([pairs, pairs.flip(0)], 1))


@pytest.mark.parametrize("aggregator", [APPNP(0.2, 3), FAR], ids=repr)
def test_it_is_the_share_that_clients_read_that_do_not_train(aggregator: APPNP) -> None:
    """Written down over a dense Ã, of a graph that has clients without neighbours."""
    graph = DNC(num_clients=60, num_features=4, degree=3, lam=1.5).graph.to(torch.float64)
    training = graph.training_clients
    found = echoes(propagation(graph, aggregator.gamma, torch.float64), training)
    A = torch.tensordot(aggregator.gamma, dense_powers(graph, aggregator.M), 1)
    rest = [i for i in range(60) if i not in training.tolist()]
    for k in range(60):
        share = sum(float(A[i, k]) for i in rest) / sum(float(A[i].sum()) for i in rest)
        expected = share * float(A[k].sum()) / float(A[k, k]) if k in training else 0.0
        assert float(found[k]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("aggregator", [APPNP(0.2, 3), FAR], ids=repr)
@pytest.mark.parametrize("data", [DNC(num_clients=40, num_features=4), SNC(40, 4, samples_per_client=3)], ids=repr)
def test_where_everybody_hears_everybody_all_samples_read_the_same(aggregator: APPNP, data: DNC | SNC) -> None:
    graph = complete(data.graph.to(torch.float64))
    sums = label_sums(graph, aggregator, SharedLabels())
    torch.testing.assert_close(sums, sums[:1].expand_as(sums))


def test_where_everybody_trains_there_is_none() -> None:
    graph = SC(num_clients=20, num_features=6, train_samples=4).graph
    seen = SharedLabels().of(graph, SOURCE)
    assert torch.equal(SharedLabels().heard(seen, FAR.gamma).x, seen.x)


def test_nothing_else_is_touched_and_hearing_twice_is_hearing_once() -> None:
    graph = DNC(num_clients=60, num_features=4).graph
    seen = SharedLabels().of(graph, SOURCE)
    heard = SharedLabels().heard(seen, FAR.gamma)
    train = seen.mask(Split.TRAIN)
    assert torch.equal(heard.x[~train], seen.x[~train])
    assert torch.equal(heard.x[train, :-2], seen.x[train, :-2])
    assert bool(heard.x[train, -2:].any(dim=1).all())
    assert torch.equal(SharedLabels().heard(heard, FAR.gamma).x, heard.x)
    assert AsTheyAre().heard(graph, FAR.gamma) is graph


def test_where_a_coefficient_is_negative_there_is_none() -> None:
    """Strengths that cancel are no strengths: on a ring every sum of P⁰ − P is but rounding."""
    N = 12
    ends = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
    P = normalized_edges(torch.cat([ends, ends.flip(0)], 1), None, N, torch.float64)
    assert not bool(echoes(Propagation(P, torch.tensor([1.0, -1.0])), torch.arange(4)).any())
    assert bool(echoes(Propagation(P, torch.tensor([0.0, 1.0])), torch.arange(4)).any())


def test_nobody_hears_an_echo_where_it_trains_alone_afterwards() -> None:
    """What FedAvg and clients that train on alone would learn of it is to copy their own label."""
    graph = complete(SNC(40, 4, samples_per_client=3).graph)
    module = GFL(4, 2, Linear(), FAR, records=SharedLabels(), mix=Mix(fedavg=True, steps=(5,)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = FederatedTrainer(max_steps=2, enable_model_summary=False, accelerator="cpu", **quiet)  # type: ignore[arg-type]
    trainer.fit(module, Given(graph))
    module.calibrate()
    (alone,) = module.mixture.tuned
    W = module.current_weights()["W"]
    assert not bool(module.mixture.fedavg["W"][:, 4:].any())
    assert torch.equal(alone["W"][..., 4:], W[:, 4:].expand_as(alone["W"][..., 4:]))
    assert not torch.equal(alone["W"], W.expand_as(alone["W"]))
    heard = module.federation.graph
    assert bool(heard.x[heard.mask(Split.TRAIN), 4:].any())


def test_without_it_labels_that_travel_far_are_read_the_wrong_way_round() -> None:
    """On a dense graph: a client misses its own class in what it reads, unless it hears the echo."""
    data, records, aggregator = DNC(num_clients=400, num_features=1, degree=30).graph, SharedLabels(2.0), APPNP(0.01, 5)
    graph = replace(data, x=torch.zeros_like(data.x))
    seen, accuracy = records.of(graph, SOURCE), []
    for one in (seen, records.heard(seen, aggregator.gamma)):
        federation = Federation(one, Linear(), aggregator, local=LocalTraining(1.0, 10))
        state = federation.start()
        for _ in range(5):
            state, report = federation.round(state)
        accuracy.append(report.metrics["test"].accuracy)  # type: ignore[attr-defined]
    assert accuracy[0] < 0.2
    assert accuracy[1] > 0.9
