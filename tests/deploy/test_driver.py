"""A deployment in one process: sites with tables of their own take the engine's trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_builders import Simulated, driver, make_tables, plan

from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection

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
PARTS: dict[str, dict[str, Any]] = {
    "sgc": {"aggregator": SGC(k=2)},
    "sgc, gram": {"aggregator": SGC(k=2), "protocol": "gram"},
    "linear": {"encoder": Linear()},
    "deep": {"encoder": MLP((5, 4))},
    "momentum": {"local": LocalTraining(0.2, 3, momentum=0.9)},
    "weight decay": {"local": LocalTraining(0.3, 3, weight_decay=0.1)},
    "proximal": {"local": LocalTraining(0.3, 3, proximal=0.5)},
    "server momentum": {"server": Momentum(0.5, 0.9)},
    "learnable, v1, batches": {
        "aggregator": LearnablePolynomial(M=2),
        "estimator": "v1",
        "local": LocalTraining(0.3, 3, 4),
    },
    "some, momentum": {
        "participation": Participation(train=0.5, share=0.7),
        "local": LocalTraining(0.2, 3, 4, momentum=0.5),
    },
}


@pytest.mark.parametrize(
    ("case", "task"), [(case, task) for task in ("sc", "snc", "dnc") for case in CASES] + [(one, "sc") for one in PARTS]
)
def test_sites_with_their_own_tables_take_the_engines_trajectory(tmp_path: Path, case: str, task: str) -> None:
    make_tables(tmp_path, task)
    chosen = plan(task, 4, seed=3, **{"local": LocalTraining(0.3, 3), "encoder": SMALL} | (CASES | PARTS)[case])
    made = driver(tmp_path, chosen)
    outcome = made.run()
    best, metrics, last = simulated(tmp_path, chosen)
    torch.testing.assert_close(made.weights, last, rtol=1e-5, atol=1e-6)
    assert outcome.best.round == best.round
    assert outcome.best.val_loss == pytest.approx(best.val_loss, rel=1e-5)
    for split in ("train", "val", "test"):
        assert vars(outcome.test[split]) == pytest.approx(vars(metrics[split]), rel=1e-5)


TWENTY: dict[str, dict[str, Any]] = {
    "jacobian": {},
    "gram": {"protocol": "gram"},
    "released": {"release": True},
    "masked": {"masking": Masking(on=True)},
    "masked, gram": {"masking": Masking(on=True), "protocol": "gram"},
    "masked, 32 bits": {"masking": Masking(on=True, bits=32, fraction=22)},
}


@pytest.mark.parametrize("case", TWENTY)
def test_the_trajectory_is_that_of_fit_after_twenty_rounds(tmp_path: Path, case: str) -> None:
    make_tables(tmp_path)
    chosen = plan("sc", 20, local=LocalTraining(0.2, 10, 4), **TWENTY[case])
    made = driver(tmp_path, chosen)
    made.run()
    torch.testing.assert_close(made.weights, simulated(tmp_path, chosen)[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("unit", ["client", "sample"])
def test_bounds_on_uploads_are_the_engines(tmp_path: Path, unit: Any) -> None:
    """Without noise, which nobody can repeat, protected uploads of either unit give the engine's trajectory."""
    make_tables(tmp_path)
    hidden, jacobian = Gaussian(0.0, 0.2), Gaussian(0.0, 0.3)
    update = Gaussian(0.0, 0.05) if unit == "client" else Gaussian()
    protection = Protection(hidden, jacobian, update, unit=unit)
    chosen = plan("sc", 4, encoder=SMALL, local=LocalTraining(0.3, 3), protection=protection)
    made = driver(tmp_path, chosen)
    made.run()
    torch.testing.assert_close(made.weights, simulated(tmp_path, chosen)[2], rtol=1e-5, atol=1e-6)
    free = simulated(tmp_path, plan("sc", 4, encoder=SMALL, local=LocalTraining(0.3, 3)))[2]
    assert any(not torch.allclose(made.weights[name], weight, rtol=1e-2) for name, weight in free.items())
