"""Five parts from outside the package, each through Python and through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from extending.deep_gelu import DeepGELU
from extending.fed_yogi import FedYogi
from extending.heat import Heat
from extending.laplace import Laplace
from extending.ring import Ring

from gfl_lightning.__main__ import main
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import releases

ROOT = Path(__file__).parents[2]
LOCAL = LocalTraining(lr=0.2, steps=3)
PARTS: dict[str, dict[str, Any]] = {
    "aggregator": {"aggregator": Heat(t=2.0)},
    "server": {"server": FedYogi(lr=0.05)},
    "mechanism": {"protection": Protection(hidden=Laplace(scale=0.1, clip=1.0))},
    "encoder": {"encoder": DeepGELU(width=8)},
}


def train(rounds: int, **parts: Any) -> tuple[Federation, list[float]]:
    federation = Federation(Ring().graph, local=LOCAL, **parts)
    state, losses = federation.start(), []
    for _ in range(rounds):
        state, report = federation.round(state)
        losses.append(report.metrics["train"].loss)
    return federation, losses


@pytest.mark.parametrize("name", PARTS)
def test_a_part_from_outside_trains(name: str) -> None:
    _, losses = train(30, **PARTS[name])
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize("name", PARTS)
def test_a_federation_with_it_resumes_to_the_bit(name: str) -> None:
    federation = Federation(Ring().graph, local=LOCAL, **PARTS[name])
    state, _ = federation.round(federation.start())
    again = federation.resume(state.round, state.weights, federation.progress(state))
    for _ in range(3):
        state, again = federation.round(state)[0], federation.round(again)[0]
    for weight, other in zip(state.weights.values(), again.weights.values(), strict=True):
        assert torch.equal(weight, other)


def test_heat_is_the_matrix_exponential() -> None:
    federation = Federation(Ring().graph, aggregator=Heat(t=0.7, M=20))
    P = Federation(Ring().graph, aggregator=SGC(k=1)).propagation.dense().double()
    expected = torch.linalg.matrix_exp(-0.7 * (torch.eye(len(P)) - P))
    torch.testing.assert_close(federation.propagation.dense().double(), expected, atol=1e-6, rtol=0)


def test_fed_yogi_without_memory_of_squares_is_momentum_on_a_floor() -> None:
    W, average = {"W": torch.zeros(3)}, {"W": torch.tensor([1e-6, -2e-6, 3e-6])}
    mine, _ = FedYogi(lr=1.0, beta1=0.5, beta2=1.0, tau=1.0).step(W, average, {})
    theirs, _ = Momentum(lr=0.5, beta=0.5).step(W, average, {})
    torch.testing.assert_close(mine, theirs)


def test_an_encoder_of_three_layers_takes_the_general_path() -> None:
    federation, _ = train(1, encoder=DeepGELU(width=8))
    assert federation.path == "general"
    x, shapes = federation.graph.x, MLP((8, 8), "gelu").shapes(8, 2)
    weights = federation.start().weights
    named = dict(zip(shapes, weights.values(), strict=True))
    torch.testing.assert_close(DeepGELU(8)(weights, x), MLP((8, 8), "gelu")(named, x))


def test_laplace_has_its_moments_and_its_price() -> None:
    draws = Laplace(scale=2.0).draw((200_000,), NoiseKey.of_seed(0).source("test"))
    assert abs(float(draws.mean())) < 0.03
    assert abs(float(draws.var()) - 8) < 0.2
    assert abs(float(draws.abs().mean()) - 2) < 0.02
    assert Laplace(scale=2.0, clip=1.0).cost(torch.tensor([2.0]), entries=4).pure.tolist() == [2.0]
    assert Laplace(clip=1.0).gap == "no noise"


def test_a_ring_can_be_drawn_again() -> None:
    ring = Ring(num_clients=12)
    assert torch.equal(ring.graph.x, replace(ring).graph.x)
    assert not torch.equal(ring.graph.x, ring.repeated(1).graph.x)


CONFIG = {
    "trainer": {"max_steps": 6, "enable_progress_bar": False},
    "model": {
        "class_path": "GFL",
        "init_args": {
            "aggregator": {"class_path": "extending.heat.Heat", "init_args": {"t": 2.0}},
            "server": {"class_path": "extending.fed_yogi.FedYogi", "init_args": {"lr": 0.05}},
            "encoder": {"class_path": "extending.deep_gelu.DeepGELU", "init_args": {"width": 8}},
            "local": {"lr": 0.2, "steps": 3},
            "noise_seed": 0,
            "protection": {"hidden": {"class_path": "extending.laplace.Laplace", "init_args": {"scale": 0.1}}},
        },
    },
    "data": {"class_path": "extending.ring.Ring", "init_args": {"num_clients": 24}},
}


def test_all_five_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.yaml").write_text(json.dumps(CONFIG))

    def fit(folder: str, *arguments: str) -> None:
        config = ("--config", "ring.yaml", "--trainer.default_root_dir", folder)
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", *config, *arguments])
        main()

    fit("whole")
    (summary,) = (tmp_path / "whole").rglob("summary.json")
    shown = summary.read_text()
    for part in (Heat, FedYogi, DeepGELU, Laplace, Ring):
        assert part.__name__ in shown
    fit("half", "--trainer.max_steps", "3")
    (last,) = (tmp_path / "half").rglob("last.ckpt")
    fit("rest", "--ckpt_path", str(last))
    whole, rest = (
        torch.load(next((tmp_path / name).rglob("last.ckpt")), weights_only=True)["state_dict"]
        for name in ("whole", "rest")
    )
    for name, weight in whole.items():
        assert torch.equal(weight, rest[name])


def test_a_new_process_finds_parts_whose_options_are_named_one_by_one(tmp_path: Path) -> None:
    model = ("--model=GFL", "--model.aggregator=extending.heat.Heat", "--model.aggregator.t=.3", "--model.local.lr=0.1")
    quick = ("--data=extending.ring.Ring", "--trainer.max_steps=2", "--report=false")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "gfl_lightning", "fit", *model, *quick]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = (tmp_path / "runs/gfl/version_0/config.yaml").read_text()
    assert "class_path: extending.heat.Heat" in kept
    assert "t: 0.3" in kept
    assert "lr: 0.1" in kept


def test_the_price_of_laplace_is_in_the_account() -> None:
    federation, _ = train(1, **PARTS["mechanism"])
    facts = release_facts(federation.graph, federation.model, "compensated", federation.schedule, "uniform")
    made = releases(federation.protection, Guarantee(), facts)
    assert made.costs["hidden"].pure.max() == pytest.approx(2 * 2**0.5 / 0.1, rel=1e-4)
    assert any("∇ĥ_j" in gap for gap in made.gaps)
