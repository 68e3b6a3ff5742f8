"""A cell's record against plain loops that know nothing of cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.options import LocalTraining
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.synthetic import dnc, sc
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.studies.cell import Cell, DataSet, Method
from gfl_lightning.studies.training import run_cell, without_test

SMALL_SC = DataSet("sc", (("num_clients", 20), ("num_features", 10), ("test_samples", 7)))
SMALL_DNC = DataSet("dnc", (("num_clients", 60), ("num_features", 10)))
CASES = {
    "dnc": (SMALL_DNC, Method("gfl", 60, 0.5, 5)),
    "sc": (SMALL_SC, Method("gfl", 40, 0.2, 4, batch_size=5)),
    "fedmlp": (SMALL_SC, Method("gfl", 40, 0.2, 4, batch_size=5, aggregator="identity")),
    "v1": (SMALL_DNC, Method("gfl", 60, 0.5, 5, estimator="v1")),
}


@pytest.mark.parametrize("case", CASES)
def test_the_model_with_the_lowest_validation_loss_is_tested(case: str) -> None:
    """On the whole graph, test samples included, the same rounds give the same model and the same test."""
    data, method = CASES[case]
    record = run_cell(Cell(data, method, 3))
    recipe = dnc if data.name == "dnc" else sc
    graph = recipe(**dict(data.options), repetition=3)  # type: ignore[operator]
    federation = Federation(
        graph,
        aggregator=Identity() if method.aggregator == "identity" else None,
        estimator=method.estimator,
        local=LocalTraining(method.lr, method.steps, method.batch_size),
        seed=3,
    )
    state, best = federation.start(), None
    for _ in range(method.rounds):
        state, report = federation.round(state)
        if best is None or report.metrics["val"].loss < best.metrics["val"].loss:
            best = report
    assert best is not None
    assert record["best_round"] == best.round
    assert record["accuracy"] == pytest.approx(best.metrics["test"].accuracy, abs=1e-6)
    assert record["loss"] == pytest.approx(best.metrics["test"].loss, rel=1e-4)
    assert record["val_loss"] == pytest.approx(best.metrics["val"].loss, rel=1e-4)
    assert record["curves"]["val"][-1] == pytest.approx(report.metrics["val"].loss, rel=1e-4)
    assert record["curves"]["updates"][-1] == method.updates
    if data.name == "sc":
        assert sum(record["per_client"]) / 20 == pytest.approx(record["accuracy"], abs=1e-6)


def test_no_test_label_is_near_training() -> None:
    for graph in (dnc(num_clients=60, num_features=10), sc(num_clients=20, num_features=10)):
        view = without_test(graph)
        assert not bool(view.mask(Split.TEST).any())
        assert torch.equal(view.training_clients, graph.training_clients)
        assert bool((view.shared | view.mask(Split.VAL) | view.mask(Split.TRAIN)).all())


def test_same_start_is_the_same_weights_on_other_draws() -> None:
    method = Method("gfl", 2, 1e-9, 2)
    first, second = (run_cell(Cell(SMALL_DNC, replace(method, same_start=True), r)) for r in (0, 1))
    other = run_cell(Cell(SMALL_DNC, method, 1))
    assert len({first["loss"], second["loss"], other["loss"]}) == 3
    assert run_cell(Cell(SMALL_DNC, method, 0))["loss"] == first["loss"]


def test_mlps_train_alone() -> None:
    record = run_cell(Cell(SMALL_SC, Method("mlps", 30, 0.1, batch_size=5), 0))
    assert len(record["per_client"]) == 20
    assert record["rounds"] == 30
    assert sum(record["per_client"]) / 20 == pytest.approx(record["accuracy"], abs=1e-6)


def test_networks_take_the_trajectory_of_one_local_step() -> None:
    central = run_cell(Cell(SMALL_DNC, Method("central", 40, 0.5), 2))
    federated = run_cell(Cell(SMALL_DNC, Method("gfl", 40, 0.5, 1), 2))
    assert central["best_round"] == federated["best_round"]
    assert central["loss"] == pytest.approx(federated["loss"], rel=1e-4)


def test_divergence_is_recorded() -> None:
    record = run_cell(Cell(SMALL_DNC, Method("central", 40, 1e30, architecture="gcn"), 0))
    assert record["diverged"] is True
    assert record["accuracy"] is None


def test_probes_measure_along_the_run() -> None:
    record = run_cell(Cell(SMALL_DNC, Method("gfl", 20, 0.5, 4, probes=2), 0))
    measured = record["measured"]
    assert measured["sigma_G_squared"] == 0
    assert measured["sigma_H_squared"] > 0
    assert measured["kappa_squared"] > 0
    assert measured["running"]["updates"] == [4, 8, 12, 16, 20]
    assert measured["running"]["grad_norm_squared"][-1] == pytest.approx(measured["grad_norm_squared"])
    graph = dnc(num_clients=60, num_features=10)
    federation = Federation(graph, local=LocalTraining(0.5, 4))
    W = {name: weight.requires_grad_() for name, weight in federation.start().weights.items()}
    rows = graph.mask(Split.TRAIN)
    F.cross_entropy(federation.logits_of(W)[rows], graph.y[rows]).backward()
    norm = sum(float(weight.grad.square().sum()) for weight in W.values() if weight.grad is not None)
    assert measured["running"]["grad_norm_squared"][0] == pytest.approx(norm, rel=1e-4)
