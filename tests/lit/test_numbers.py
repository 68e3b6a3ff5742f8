"""A fit on numbers from the command line: its summary, its intervals on other tables, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from table_builders import clinics

from gfl_lightning.lit import cli

COLUMNS = ["--data.client=client", "--data.label=cost", "--data.features=[age,marker]"]


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", *args])
    cli.main()


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    samples, edges = clinics(n=30)
    draw = np.random.default_rng(1)
    samples = samples.drop(columns="label").fillna(1.0)
    level = samples["client"].str.removeprefix("clinic ").astype(int)
    samples["cost"] = 1000 + 20 * samples["age"] + 300 * level + draw.normal(0, 100, len(samples))
    samples.to_csv("samples.csv", index=False)
    edges.to_csv("edges.csv", index=False)
    return samples


def fit(monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    data = ["--data=ClientTables", "--data.samples=samples.csv", "--data.edges=edges.csv", "--data.task=sc", *COLUMNS]
    model = ["--model=GFL", "--model.local.lr=0.05", "--model.local.steps=5", "--model.personal=OwnLevel"]
    quiet = ["--trainer.enable_progress_bar=false", "--trainer.max_steps=60", "--report=false"]
    run(monkeypatch, "fit", *quiet, *model, *data, *more)


def test_numbers_are_learned_and_predicted_with_intervals(
    tables: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(monkeypatch, "--data.loss=SquaredError")
    said = capsys.readouterr().out
    assert "test error" in said
    assert "rank correlation" in said
    summary = json.loads(Path("runs/gfl/version_0/summary.json").read_text())
    assert summary["test_r2"] > 0.8
    assert summary["test_mae"] < summary["baseline_mae"] / 2
    checkpoint = "--ckpt_path=runs/gfl/version_0/best.ckpt"
    run(monkeypatch, "test", checkpoint, "--data=ClientTables", "--data.samples=samples.csv")
    assert "spearman" in capsys.readouterr().out
    tables.drop(columns="cost").to_csv("unknown.csv", index=False)
    run(monkeypatch, "predict", checkpoint, "--data=ClientTables", "--data.samples=unknown.csv", "--output=p.csv")
    found = pd.read_csv("p.csv")
    assert list(found) == ["client", "sample", "predicted", "low", "high"]
    assert np.corrcoef(found["predicted"], tables["cost"])[0, 1] > 0.9
    inside = (tables["cost"] >= found["low"]) & (tables["cost"] <= found["high"])
    assert 0.8 < float(inside.mean()) < 0.98
    assert len(set((found["high"] - found["low"]).round(3))) == 1


def test_mistakes_with_numbers_are_one_sentence(
    tables: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        fit(monkeypatch)
    assert stop.value.code == 2
    assert (
        "different numbers are too many for classes: for regression say loss: SquaredError" in capsys.readouterr().err
    )
    fit(monkeypatch, "--data.loss=Huber", "--data.loss.delta=2", "--trainer.max_steps=2")
    capsys.readouterr()
    other = ["--data=ClientTables", "--data.samples=samples.csv", "--data.loss=Poisson"]
    with pytest.raises(SystemExit) as stop:
        run(monkeypatch, "predict", "--ckpt_path=runs/gfl/version_0/best.ckpt", *other)
    assert stop.value.code == 2
    assert "loss must be left out or be Huber" in capsys.readouterr().err
