"""What a fit on tables prints and leaves, what stops it, and how mistakes on the command line are answered."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import wandb
import yaml  # type: ignore[import-untyped]
from table_builders import clinics

from gfl_lightning.__main__ import main

Run = Callable[..., str]
FIT = ("fit", "--model=GFL", "--model.encoder.hidden=[8]", "--data=ClientTables", "--data.samples=s.csv")
FIT += ("--data.edges=e.csv", "--data.task=sc", "--trainer.enable_progress_bar=false")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    for table, file in zip(clinics(), ("s.csv", "e.csv"), strict=True):
        table.to_csv(file, index=False)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *arguments])
        main()
        return capsys.readouterr().out

    return call


def rounds(number: int) -> int:
    return int(json.loads(Path(f"runs/gfl/version_{number}/summary.json").read_text())["rounds"])


def test_patience_ends_a_fit_on_tables_and_can_be_set(run: Run) -> None:
    fast = (*FIT, "--model.local.lr=2.0", "--report=false", "--trainer.max_steps=160")
    run(*fast)
    run(*fast, "--patience=5")
    run(*fast, "--patience=0")
    assert rounds(1) < rounds(0) < rounds(2) == 160


def test_a_fit_with_a_timer_runs_and_its_configuration_runs_again(run: Run) -> None:
    timer = ("--trainer.callbacks=Timer", "--trainer.callbacks.duration=00:01:00:00")
    run(*FIT, *timer, "--report=false", "--trainer.max_steps=2")
    run("fit", "--config=runs/gfl/version_0/config.yaml")
    assert rounds(0) == rounds(1) == 2


def test_a_patience_below_one_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run(*FIT, "--patience=-1")
    assert stop.value.code == 2
    assert "patience must be at least 1, got -1" in capsys.readouterr().err


def test_no_patience_under_a_guarantee(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("hidden", "jacobian", "update")
    noise = [f"--model.protection.{kind}.{name}=1" for kind in kinds for name in ("std", "clip")]
    with pytest.raises(SystemExit) as stop:
        run("fit", "--model=GFL", "--data=DNC", "--data.num_clients=50", *noise, "--patience=5")
    assert stop.value.code == 2
    assert "patience must be 0 under a guarantee" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_screen_speaks_of_edges_baseline_and_of_training_longer(run: Run) -> None:
    shown = run(*FIT, "--model.local.lr=0.001", "--trainer.max_steps=3", "--report=false")
    assert "edges  the edges" in shown
    assert "(validation loss" in shown
    assert "the last: train longer" in shown
    assert "a client's own accuracy is" in shown
    assert "majority" in shown
    assert not Path("runs/gfl/version_0/report.html").exists()
    assert not Path("runs/gfl/version_0/loss_curves.png").exists()


def test_mistyped_options_and_missing_data_are_answered(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(*FIT, "--trainer.maximal_steps=3")
    assert "--trainer.max_steps" in capsys.readouterr().err
    run(*FIT, "--trainer.max_steps=2", "--report=false")
    with pytest.raises(SystemExit) as stop:
        run("test", "--ckpt_path=runs/gfl/version_0/best.ckpt")
    assert stop.value.code == 2
    assert "data must be given to test, as the checkpoint holds none" in capsys.readouterr().err
    for command in ("test", "validate"):
        with pytest.raises(SystemExit) as stop:
            run(command, *FIT[1:], "--ckpt_path=runs/gfl/version_0/best.ckpt", "--data.label=nobody's")
        assert stop.value.code == 2
        sentence = f"data must hold samples to {command} on, with labels that are known, got 'none'."
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mistyped", "hint"),
    [
        (["--model.lr=0.1"], "Perhaps --model.local.lr or --model.server.lr instead of --model.lr."),
        (["--data.lable=y"], "Perhaps --data.label instead of --data.lable."),
        (["--model.agregator.alpha=0.3"], "Perhaps --model.aggregator.alpha instead of --model.agregator.alpha."),
        (["--patiense=3"], "Perhaps --patience instead of --patiense."),
        (["--model.local.learning_rate=0.1"], "Beside --model.local.learning_rate there would be --model.local.batch"),
        (["--config=bad.yaml"], "Perhaps --data.scaling or"),
    ],
)
def test_a_mistyped_option_is_answered_by_the_nearest(
    run: Run, capsys: pytest.CaptureFixture[str], mistyped: list[str], hint: str
) -> None:
    bad = "model: {class_path: GFL}\ndata: {class_path: ClientTables, init_args: {samples: s.csv, edges: e.csv, "
    Path("bad.yaml").write_text(bad + "task: sc, scalling: none, class_weights: {ill: 2, well: 1}}}\n")
    whole = ["fit", *mistyped] if "--config" in mistyped[0] else [*FIT, *mistyped]
    with pytest.raises(SystemExit) as stop:
        run(*whole)
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert hint in said
    assert "class_weights" not in said
    assert not Path("runs").exists()


def test_a_mistyped_command_is_answered(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run("comprae", "--config=x.yaml")
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "COMMAND must be one of audit, compare" in said
    assert said.endswith("got 'comprae'. Perhaps compare.\n")


def test_without_a_report_no_other_model_is_trained(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfl_lightning.lit.fit_files.rivals_of", lambda *_: pytest.fail("trained"))
    run(*FIT, "--trainer.max_steps=2", "--report=false")
    assert {file.name for file in Path("runs/gfl/version_0").iterdir()} >= {"summary.json", "best.ckpt"}
    assert not list(Path("runs/gfl/version_0").glob("*.png"))


def test_runs_of_wandb_keep_their_own_configurations(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for rounds_wanted in (2, 3):
        logger = ("--trainer.logger=WandbLogger", "--trainer.logger.save_dir=", "--trainer.logger.offline=true")
        run(*FIT, *logger, "--trainer.logger.project=p", f"--trainer.max_steps={rounds_wanted}", "--report=false")
        wandb.finish()
    kept = {file.parent: yaml.safe_load(file.read_text()) for file in Path("runs").rglob("config.yaml")}
    own = {folder: config for folder, config in kept.items() if "trainer" in config}
    assert sorted(config["trainer"]["max_steps"] for config in own.values()) == [2, 3]
    for folder, config in own.items():
        assert json.loads((folder / "summary.json").read_text())["rounds"] == config["trainer"]["max_steps"]
