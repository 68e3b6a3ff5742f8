"""`mix` as an option of fit: its checkpoint, `test` and `predict` go by it, and it is refused where it cannot be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from table_builders import clinics

from gfl_lightning.__main__ import main
from gfl_lightning.checks import InputError
from gfl_lightning.federated.afterwards.mix import Mix
from gfl_lightning.federated.afterwards.mixture import Mixed
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.sealed_files import read_sealed

CONFIG: dict[str, Any] = {
    "trainer": {"max_steps": 6},
    "model": {
        "class_path": "GFL",
        "init_args": {
            "encoder": {"class_path": "MLP", "init_args": {"hidden": [6]}},
            "personal": {"class_path": "OwnLevel"},
            "mix": {"fedavg": True, "steps": [3, 30]},
        },
    },
    "data": {"class_path": "ClientTables", "init_args": {"samples": "s.csv", "edges": "e.csv", "task": "sc"}},
}


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", *args])
    main()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    samples, edges = clinics()
    samples.to_csv("s.csv", index=False)
    edges.to_csv("e.csv", index=False)
    Path("c.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def test_fit_test_and_predict_go_by_the_mix(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "fit", "--config=c.yaml", "--report=false")
    said = capsys.readouterr().out
    folder = here / "runs" / "gfl" / "version_0"
    summary = json.loads((folder / "summary.json").read_text())
    assert list(summary["mix"]) == ["as trained", "FedAvg", "3 steps alone", "30 steps alone"]
    assert sum(summary["mix"].values()) == pytest.approx(1)
    assert "heeded  as trained" in said
    kept = read_sealed(folder / "best.ckpt", "ckpt_path")["mixture"]
    run(monkeypatch, "test", "--config=c.yaml", f"--ckpt_path={folder / 'best.ckpt'}")
    assert f"{summary['test_loss']:.4f}"[:5] in capsys.readouterr().out
    data = ClientTables(samples="s.csv", edges="e.csv", task="sc")
    module = GFL.load_from_checkpoint(folder / "best.ckpt")
    base = module.predictor_on(data.graph)
    assert isinstance(base, Mixed)
    z = base.logits_of(module.current_weights())
    rows = data.graph.mask(Split.TEST)
    assert float(data.graph.losses(z[rows], rows).mean()) == pytest.approx(summary["test_loss"], abs=1e-5)
    assert not torch.allclose(z, base.base.logits_of(module.current_weights()))
    pd.read_csv("s.csv").drop(columns="label").iloc[[3, 77, 140]].to_csv("new.csv", index=False)
    run(monkeypatch, "predict", f"--ckpt_path={folder / 'best.ckpt'}", "--data=ClientTables", "--data.samples=new.csv")
    found = pd.read_csv(folder / "predictions.csv").filter(like="p_").to_numpy()
    names = list(zip((data.names.clients[k] for k in data.graph.client), map(str, data.names.samples), strict=True))
    new = pd.read_csv(folder / "predictions.csv")
    at = [names.index((row.client, str(row.sample))) for row in new.itertuples()]
    np.testing.assert_allclose(found, torch.softmax(z, 1)[at], atol=2e-5)
    assert kept["weight"].shape == (12, 4)


def test_what_is_mixed_is_nobody_elses_business(here: Path) -> None:
    """A fit makes the same rounds with and without it, and other tables are none of the clients it is for."""
    data = ClientTables(samples="s.csv", edges="e.csv", task="sc")
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    weights = []
    for mix in (Mix(), Mix(fedavg=True, steps=(4,))):
        module = GFL(data.graph.num_features, 2, MLP((6,)), personal=OwnLevel(), mix=mix, seed=1)
        FederatedTrainer(max_steps=4, enable_model_summary=False, accelerator="cpu", **quiet).fit(module, data)
        weights.append(module.current_weights())
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=0)
    module.use_best()
    module.calibrate()
    other = ClientTables(samples="s.csv", edges="e.csv", task="sc", seed=1)
    assert isinstance(module.predictor_on(data.graph), Mixed)
    assert not isinstance(module.predictor_on(other.graph), Mixed)


@pytest.mark.parametrize("what", ["weight", "tuned", "fedavg", "terms"])
def test_a_checkpoint_with_another_mixture_is_refused(here: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gfl_lightning.lit.checkpoint_layout import require_layout  # noqa: PLC0415

    data = ClientTables(samples="s.csv", edges="e.csv", task="sc")
    module = GFL(data.graph.num_features, 2, MLP((6,)), mix=Mix(fedavg=True, steps=(4,)))
    trainer = FederatedTrainer(
        max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(module, data)
    module.calibrate()
    trainer.save_checkpoint("m.ckpt")
    checkpoint = read_sealed("m.ckpt", "ckpt_path")
    require_layout(checkpoint, "ckpt_path")
    damaged: dict[str, Any] = {
        "weight": torch.zeros(12, 5),
        "tuned": [{"W1": torch.zeros(12, 1, 1)}],
        "fedavg": {"W1": torch.zeros(3)},
        "terms": {"gate": torch.zeros(3)},
    }
    for weights in (checkpoint["mixture"]["fedavg"], *checkpoint["mixture"]["tuned"]):
        taken = weights.pop("W1")
        with pytest.raises(InputError, match=r"ckpt_path must hold models of its mixture by W1, W2, got \['W2'\]"):
            module.on_load_checkpoint(checkpoint)
        weights["W1"] = taken
    checkpoint["mixture"][what] = damaged[what]
    with pytest.raises(InputError, match="ckpt_path must"):
        require_layout(checkpoint, "ckpt_path")


def test_a_protected_fit_mixes_nothing(here: Path) -> None:
    data = ClientTables(samples="s.csv", edges="e.csv", task="sc")
    protection = Protection(hidden=Gaussian(std=1.0, clip=1.0))
    module = GFL(data.graph.num_features, 2, mix=Mix(fedavg=True), protection=protection)
    with pytest.raises(InputError, match="mix must be left out where uploads are protected"):
        module.engine_on(data.graph, 2)
