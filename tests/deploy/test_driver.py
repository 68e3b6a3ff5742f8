"""A deployment in one process: sites with tables of their own take the engine's trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_builders import Simulated, driver, make_tables, plan

from gfl_lightning.deploy.plan import Plan
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.mlp import MLP

SMALL = MLP((6,))


def simulated(folder: Path, plan: Plan) -> tuple[Best, dict[str, Metrics], dict[str, torch.Tensor]]:
    """The best round, its metrics and the last weights, as `fit` finds them."""
    federation = Simulated.of(folder, plan).federation
    state, best = federation.start(), Best()
    for _ in range(plan.rounds):
        state, report = federation.round(state)
        best = federation.choose(best, state, report)
    return best, federation.metrics_of(best.weights), state.weights


CASES: dict[str, dict[str, Any]] = {
    "jacobian": {},
    "gram": {"protocol": "gram"},
    "v1": {"estimator": "v1"},
    "batches": {"local": LocalTraining(0.3, 3, 3)},
    "batches, gram": {"local": LocalTraining(0.3, 3, 3), "protocol": "gram"},
    "learnable": {"aggregator": LearnablePolynomial(M=3)},
    "fedavg": {"aggregator": Identity()},
    "some": {"participation": Participation(train=0.5, share=0.5)},
    "some, gram": {"participation": Participation(train=0.5, share=0.5), "protocol": "gram"},
    "adaptive": {"server": FedAdam(0.05), "weighting": "samples"},
    "balanced": {"class_weights": "balanced"},
}


@pytest.mark.parametrize("task", ["sc", "snc", "dnc"])
@pytest.mark.parametrize("case", CASES)
def test_sites_with_their_own_tables_take_the_engines_trajectory(tmp_path: Path, case: str, task: str) -> None:
    make_tables(tmp_path, task)
    chosen = plan(task, 4, encoder=SMALL, seed=3, **{"local": LocalTraining(0.3, 3)} | CASES[case])
    made = driver(tmp_path, chosen)
    outcome = made.run()
    best, metrics, last = simulated(tmp_path, chosen)
    assert made._sums is not None
    torch.testing.assert_close(made._sums.server.weights, last, rtol=1e-5, atol=1e-6)
    assert outcome.best.round == best.round
    assert outcome.best.val_loss == pytest.approx(best.val_loss, rel=1e-5)
    for split in ("train", "val", "test"):
        assert vars(outcome.test[split]) == pytest.approx(vars(metrics[split]), rel=1e-5)


def test_the_trajectory_is_that_of_fit_after_twenty_rounds(tmp_path: Path) -> None:
    make_tables(tmp_path)
    for protocol in ("jacobian", "gram"):
        chosen = plan("sc", 20, local=LocalTraining(0.2, 10, 4), protocol=protocol)
        made = driver(tmp_path / ".", chosen)
        made.store.file.unlink(missing_ok=True)
        made.run()
        assert made._sums is not None
        torch.testing.assert_close(made._sums.server.weights, simulated(tmp_path, chosen)[2], rtol=1e-5, atol=1e-5)
