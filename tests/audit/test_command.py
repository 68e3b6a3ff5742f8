"""``python -m gfl_lightning audit``: any configuration of fit, tables of one's own, refusals in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gfl_lightning.audit import command

ROOT = Path(__file__).parents[2]
QUICK = ["--audit.victims", "4", "--audit.fellows", "2", "--audit.shadows", "0", "--trainer.max_steps", "4"]


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "audit"])
    command.main([*arguments, *QUICK])
    return tmp_path / "runs/gfl/version_0"


def test_a_configuration_is_audited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(monkeypatch, tmp_path, "--config", str(ROOT / "configs/paper/dnc_synthetic.yaml"))
    said = capsys.readouterr().out
    assert "the server reads every record" in said
    found = json.loads((folder / "audit.json").read_text())
    assert found["claimed_epsilon"] is None
    assert {one["attack"] for one in found["findings"]} >= {"RankOne", "UpdateSample", "NeighbourWords"}
    assert "the server reads every record" in (folder / "audit.md").read_text()
    assert (folder / "audit.png").stat().st_size > 1000


def test_a_claimed_epsilon_stands_beside_what_is_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(ROOT / "configs/private/dp_sc_epsilon.yaml")
    folder = run(monkeypatch, tmp_path, "--config", config, "--data.init_args.train_samples", "20")
    found = json.loads((folder / "audit.json").read_text())
    assert found["claimed_epsilon"] == pytest.approx(8.0, rel=1e-3)
    proved = [one["empirical_epsilon"] for one in found["findings"] if one["empirical_epsilon"] is not None]
    assert proved
    assert max(proved) < 8.0
    assert "ε = 8 is claimed" in capsys.readouterr().out


def test_tables_of_ones_own_are_audited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "gfl_lightning", "init", "mine"], cwd=tmp_path, check=True)
    folder = run(monkeypatch, tmp_path, "--config", "mine/config.yaml", "--model.encoder.bias", "false")
    found = json.loads((folder / "audit.json").read_text())
    assert {"FlippedUnits", "ClassShares", "WhichWorld"} <= {one["attack"] for one in found["findings"]}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "Central", "--data", "DNC"], "model must be GFL, whose clients send something, got Central."),
        (["--model.estimator", "exact"], "estimator must be compensated or v1 for an audit"),
        (["--audit.victims", "0"], "victims must be at least 1, got 0."),
    ],
)
def test_a_mistake_gets_its_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "audit"])
    with pytest.raises(SystemExit) as stop:
        command.main([*QUICK, *arguments])
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.rglob("audit.*"))
