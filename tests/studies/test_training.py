"""A cell's record against plain loops that know nothing of cells."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.privacy.account import PrivacyAccount
from gfl_lightning.studies.cell import Cell
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.training import run_cell

SIZES = {
    "sc": {"num_clients": 20, "num_features": 10, "test_samples": 7},
    "dnc": {"num_clients": 60, "num_features": 10},
}
GAUSSIAN = "gfl_lightning.privacy.mechanisms.gaussian_noise.Gaussian"


def small(name: str, rounds: int, **model: object) -> Experiment:
    """A configuration of the paper's on small data."""
    return Experiment.read(f"paper/{name}").changed(rounds, model, SIZES[name.split("_", maxsplit=1)[0]])


def sc_graph(repetition: int) -> ClientGraph:
    return SC(num_clients=20, num_features=10, test_samples=7, repetition=repetition).graph


def dnc_graph(repetition: int) -> ClientGraph:
    return DNC(num_clients=60, num_features=10, repetition=repetition).graph


def by_hand(case: str) -> Federation:
    if case == "dnc":
        return Federation(dnc_graph(3), local=LocalTraining(0.5, 10), seed=3)
    if case == "v1":
        return Federation(dnc_graph(3), local=LocalTraining(0.5, 10), estimator="v1", seed=3)
    if case == "sc":
        return Federation(sc_graph(3), local=LocalTraining(0.2, 10, 5), seed=3)
    return Federation(sc_graph(3), local=LocalTraining(0.1, 10, 5), aggregator=Identity(), seed=3)


CASES = {"dnc": "dnc_synthetic", "sc": "sc_synthetic", "fedmlp": "sc_fedmlp", "v1": "dnc_synthetic_v1"}


@pytest.mark.parametrize("case", CASES)
def test_the_model_with_the_lowest_validation_loss_is_tested(case: str) -> None:
    """On the whole graph, test samples included, the same rounds give the same model and the same test."""
    rounds = 12
    record = run_cell(Cell(small(CASES[case], rounds), 3))
    federation = by_hand(case)
    state, best = federation.start(), None
    for _ in range(rounds):
        state, report = federation.round(state)
        if best is None or report.metrics["val"].loss < best.metrics["val"].loss:
            best = report
    assert best is not None
    assert record["best_round"] == best.round
    assert record["accuracy"] == pytest.approx(best.metrics["test"].accuracy, abs=1e-6)
    assert record["loss"] == pytest.approx(best.metrics["test"].loss, rel=1e-4)
    assert record["val_loss"] == pytest.approx(best.metrics["val"].loss, rel=1e-4)
    assert record["curves"]["val"][-1] == pytest.approx(report.metrics["val"].loss, rel=1e-4)
    assert record["curves"]["updates"][-1] == rounds * 10
    if case in ("sc", "fedmlp"):
        assert sum(record["per_client"]) / 20 == pytest.approx(record["accuracy"], abs=1e-6)


def test_no_test_label_is_near_training() -> None:
    for graph in (dnc_graph(0), sc_graph(0)):
        view = graph.without_test()
        assert not bool(view.mask(Split.TEST).any())
        assert torch.equal(view.training_clients, graph.training_clients)
        assert bool((view.shared | view.mask(Split.VAL) | view.mask(Split.TRAIN)).all())


def test_a_stated_seed_is_the_same_weights_on_other_draws() -> None:
    still = small("dnc_synthetic", 1, local={"lr": 1e-9, "steps": 2})
    stated = still.changed(model={"seed": 0})
    first, second = (run_cell(Cell(stated, r)) for r in (0, 1))
    other = run_cell(Cell(still, 1))
    assert len({first["loss"], second["loss"], other["loss"]}) == 3
    assert run_cell(Cell(still, 0))["loss"] == first["loss"]
    assert [Cell(Experiment.read("paper/sc_connectivity"), r).seed for r in (0, 1)] == [0, 0]


def test_mlps_train_alone() -> None:
    record = run_cell(Cell(small("sc_mlps", 30), 0))
    assert len(record["per_client"]) == 20
    assert record["rounds"] == 30
    assert sum(record["per_client"]) / 20 == pytest.approx(record["accuracy"], abs=1e-6)


def test_networks_take_the_trajectory_of_one_local_step() -> None:
    central = run_cell(Cell(small("dnc_synthetic_appnp", 40), 2))
    federated = run_cell(Cell(small("dnc_synthetic", 40, local={"steps": 1}), 2))
    assert central["best_round"] == federated["best_round"]
    assert central["loss"] == pytest.approx(federated["loss"], rel=1e-4)


def test_networks_on_more_features_than_clients_too() -> None:
    """There the central network is trained in coordinates of the features' span, the federation is not."""
    wide = {"num_features": 80}
    central = run_cell(Cell(small("dnc_synthetic_appnp", 40).changed(data=wide), 2))
    federated = run_cell(Cell(small("dnc_synthetic", 40, local={"steps": 1}).changed(data=wide), 2))
    assert central["best_round"] == federated["best_round"]
    assert central["loss"] == pytest.approx(federated["loss"], rel=1e-4)


def test_noise_is_calibrated_to_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    plan = PrivacyAccount.plan
    monkeypatch.setattr(
        PrivacyAccount,
        "plan",
        lambda self, facts, who, rounds, every: planned.append(rounds) or plan(self, facts, who, rounds, every),
    )
    protection = {upload: {"class_path": GAUSSIAN, "init_args": {"clip": 1.0}} for upload in ("hidden", "update")}
    private = small("dnc_synthetic_v1", 7, protection=protection)
    losses = {
        epsilon: run_cell(Cell(private.changed(model={"guarantee": _budget(epsilon)}), 0))["loss"]
        for epsilon in (1.0, 1e8)
    }
    assert planned == [7, 7]
    bounded_only = run_cell(Cell(private, 0))["loss"]
    assert losses[1e8] == pytest.approx(bounded_only, rel=0.02)
    assert abs(losses[1.0] - bounded_only) > 1


def _budget(epsilon: float) -> dict[str, object]:
    return {"max_epsilon": epsilon, "calibrate": True}


def test_divergence_is_recorded() -> None:
    record = run_cell(Cell(small("dnc_synthetic_gcn", 40, lr=1e30), 0))
    assert record["diverged"] is True
    assert record["accuracy"] is None


def test_probes_measure_along_the_run() -> None:
    record = run_cell(Cell(small("dnc_synthetic", 5, local={"steps": 4}), 0, probes=2))
    measured = record["measured"]
    assert measured["sigma_G_squared"] == 0
    assert measured["sigma_H_squared"] > 0
    assert measured["kappa_squared"] > 0
    assert measured["running"]["updates"] == [4, 8, 12, 16, 20]
    assert measured["running"]["grad_norm_squared"][-1] == pytest.approx(measured["grad_norm_squared"])
    graph = dnc_graph(0)
    federation = Federation(graph, local=LocalTraining(0.5, 4))
    W = {name: weight.requires_grad_() for name, weight in federation.start().weights.items()}
    rows = graph.mask(Split.TRAIN)
    F.cross_entropy(federation.logits_of(W)[rows], graph.y[rows]).backward()
    norm = sum(float(weight.grad.square().sum()) for weight in W.values() if weight.grad is not None)
    assert measured["running"]["grad_norm_squared"][0] == pytest.approx(norm, rel=1e-4)
