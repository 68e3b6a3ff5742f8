"""The worked example: its tables are the same for the same seed, and its commands run."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from gfl_lightning.lit import cli

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals"


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "hospitals"
    subprocess.run([sys.executable, EXAMPLE / "make_network.py", folder], check=True, capture_output=True)
    return folder


def test_the_network_is_as_described(hospitals: Path) -> None:
    patients, referrals = pd.read_csv(hospitals / "patients.csv"), pd.read_csv(hospitals / "referrals.csv")
    records = patients[patients["split"] != "test"].groupby("hospital").size()
    assert len(records) == 30
    assert [((records >= low) & (records <= high)).sum() for low, high in ((6, 14), (30, 60), (150, 400))] == [
        10,
        5,
        15,
    ]
    assert (patients[patients["split"] == "test"].groupby("hospital").size() == 100).all()
    assert set(referrals["hospital"]) | set(referrals["refers_to"]) == set(records.index)
    joined = pd.read_csv(hospitals / "joined_patients.csv")
    assert set(joined["hospital"]) - set(records.index) == {"hospital 31"}
    assert not {"complication", "split"} & set(joined.columns)
    again = hospitals.parent / "again"
    subprocess.run([sys.executable, EXAMPLE / "make_network.py", again], check=True, capture_output=True)
    for file in hospitals.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes()


def test_its_configurations_run_and_a_hospital_joins(hospitals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hospitals.parent)

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *arguments, "--trainer.enable_progress_bar=false"])
        cli.main()

    for name in ("isolated", "fedavg", "graph"):
        run("fit", "--config", str(EXAMPLE / f"{name}.yaml"), "--trainer.max_steps=3", "--report=false")
    folder = Path("runs/gfl/version_2")
    assert json.loads((folder / "summary.json").read_text())["data"] == "ClientTables"
    tables = ("--data.samples=hospitals/joined_patients.csv", "--data.edges=hospitals/joined_referrals.csv")
    run("predict", "--ckpt_path", str(folder / "best.ckpt"), "--data=ClientTables", *tables, "--output=joined.csv")
    table = pd.read_csv("joined.csv")
    assert (table["client"] == "hospital 31").sum() == 100
    assert set(table["predicted"]) <= {"yes", "no"}


@pytest.mark.filterwarnings("ignore")
def test_the_comparison_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All four methods on one network, a few rounds each; the last hospital joins without labels."""
    monkeypatch.syspath_prepend(EXAMPLE)
    runpy.run_path(str(EXAMPLE / "compare.py"))["main"](tmp_path / "figure.png", networks=1, rounds=3)
    lines = capsys.readouterr().out.splitlines()
    groups = ("graph federated", "on random edges", "FedAvg")
    assert [sum(line.strip().startswith(name) for line in lines) for name in (*groups, "isolated")] == [4, 4, 4, 3]
    assert sum(line.endswith("(1 hospitals)") for line in lines) == 3
    assert (tmp_path / "figure.png").stat().st_size > 10_000
