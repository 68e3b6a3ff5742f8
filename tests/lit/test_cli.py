"""The command line: configs, configuration errors, the summary, interruption, and the other subcommands."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from gfl_lightning.command_line import EXIT_BAD_INPUT
from gfl_lightning.lit import cli

CONFIGS = {file.stem: file for file in sorted((Path(__file__).parents[2] / "configs").glob("*/*.yaml"))}
EXPERIMENTS = [file for file in CONFIGS.values() if file.parent.name != "overlays"]
SMALL = [
    "--data.num_clients=60",
    "--data.num_features=10",
    "--model.encoder.hidden=[8]",
    "--trainer.enable_progress_bar=false",
]
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in an empty folder; the standard output, or on failure the exit code and error text."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        drawn = arguments[0] == "fit" and not any(one.startswith("--report") for one in arguments)
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *arguments, *["--report=false"] * drawn])
        cli.main()
        return capsys.readouterr().out

    return call


def newest(folder: str = "runs/gfl") -> Path:
    return max(Path(folder).iterdir(), key=lambda run: int(run.name.split("_")[1]))


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda config: config.stem)
def test_every_config_runs(config: Path, run: Run, request: pytest.FixtureRequest) -> None:
    if "cora" in config.stem:
        request.getfixturevalue("planetoid_root")
    shown = run("fit", "--config", str(config), "--trainer.max_steps=3", "--trainer.enable_progress_bar=false")
    assert "test accuracy" in shown
    summary = json.loads((newest() / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert yaml.safe_load(config.read_text())["model"]["class_path"] == summary["model"]
    assert yaml.safe_load(config.read_text())["data"]["class_path"] == summary["data"]


def test_configs_say_the_papers_updates() -> None:
    updates = {
        file.stem: (y := yaml.safe_load(file.read_text()))["trainer"]["max_steps"]
        * y["model"]["init_args"].get("local", {}).get("steps", 1)
        for file in EXPERIMENTS
    }
    published = {
        "dnc_synthetic": 3000,
        "dnc_synthetic_v1": 3000,
        "dnc_subcora": 4000,
        "dp_subcora_hn": 4000,
        "dp_subcora_hn_gn": 4000,
        "snc_synthetic": 5000,
        "snc_synthetic_v1": 8000,
        "sc_synthetic": 2000,
        "sc_connectivity": 1500,
        "sc_fedmlp": 2000,
        "sc_mlps": 200,
        "dnc_synthetic_gcn": 4000,
        "dnc_synthetic_gat": 4000,
        "dnc_synthetic_sage": 5000,
        "dnc_subcora_sage": 4000,
    }
    assert {name: updates[name] for name in published} == published


def test_a_config_gets_the_defaults_of_its_own_classes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A class named in a file must not inherit arguments of the class that stands in where no file is given."""
    expected = {
        "snc_synthetic": {"num_clients": 200, "degree": 10, "lam": 2, "mu": 1, "samples_per_client": 40},
        "sc_synthetic": {"num_clients": 50, "degree": 5, "lam": 2.2, "mu": 0.1, "test_samples": 100},
        "sc_connectivity": {"num_clients": 40, "degree": 25, "lam": 2, "mu": 1, "test_samples": 100},
    }
    for name, values in expected.items():
        with pytest.raises(SystemExit):
            run("fit", "--config", str(CONFIGS[name]), "--print_config")
        found = yaml.safe_load(capsys.readouterr().out)["data"]["init_args"]
        assert {key: found[key] for key in values} == values


def test_fit_sums_up_and_the_other_subcommands_agree(run: Run) -> None:
    shown = run("fit", *SMALL, "--trainer.max_steps=30", "--model.protocol=gram", "--model.seed=2")
    folder = newest()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert (summary["rounds"], summary["updates"], summary["seed"]) == (30, 300, 2)
    assert 1 <= summary["best_round"] <= 30
    assert summary["bytes_up"]["used"] < summary["bytes_up"]["printed"] / 10
    assert summary["bytes_down"]["used"] < summary["bytes_down"]["printed"]
    assert (summary["epsilon"], summary["delta"]) == (None, None)
    assert {"torch", "pytorch-lightning", "gfl-lightning"} <= set(summary["versions"])
    assert summary["seconds"] > 0
    assert f"{100 * summary['test_accuracy']:.2f} % of samples" in shown
    assert shown.count("\n") < 24
    with (folder / "metrics.csv").open() as stream:
        curve = [float(row["val_loss"]) for row in csv.DictReader(stream) if row["val_loss"]]
    assert min(curve) == pytest.approx(summary["val_loss"])
    assert curve.index(min(curve)) + 1 == summary["best_round"]

    best = str(folder / "best.ckpt")
    assert f"{summary['test_accuracy']:.4f}"[:6] in run("test", *SMALL[:2], SMALL[3], "--ckpt_path", best)
    assert f"{summary['val_loss']:.5f}"[:6] in run("validate", *SMALL[:2], SMALL[3], "--ckpt_path", best)
    run("predict", *SMALL[:2], SMALL[3], "--ckpt_path", best)
    with (newest() / "predictions.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 60
    assert all(abs(float(row["p_0"]) + float(row["p_1"]) - 1) < 1e-5 for row in rows)
    assert torch.load(best, weights_only=True)["hyper_parameters"]["seed"] == 2


def test_resume_on_the_command_line(run: Run) -> None:
    run("fit", *SMALL, "--trainer.max_steps=20")
    whole = json.loads((newest() / "summary.json").read_text())
    run("fit", *SMALL, "--trainer.max_steps=10")
    last = str(newest() / "checkpoints" / "last.ckpt")
    run("fit", *SMALL, "--trainer.max_steps=20", "--ckpt_path", last)
    resumed = json.loads((newest() / "summary.json").read_text())
    assert {k: v for k, v in resumed.items() if k != "seconds"} == {k: v for k, v in whole.items() if k != "seconds"}


def test_an_option_of_a_part_may_be_null(run: Run) -> None:
    """As in a file: all of a client's samples in each step, and no end to what may be spent."""
    run("fit", *SMALL, "--trainer.max_steps=2", "--model.local={batch_size: 3}", "--model.local.batch_size=null")
    stated = yaml.safe_load((newest() / "config.yaml").read_text())
    assert stated["model"]["init_args"]["local"]["batch_size"] is None


def test_print_config_round_trips(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (*SMALL, "--trainer.max_steps=2", "--model.aggregator=SGC", "--model.aggregator.k=3")
    with pytest.raises(SystemExit) as stop:
        run("fit", *arguments, "--print_config")
    assert stop.value.code == 0
    first = capsys.readouterr().out
    Path("printed.yaml").write_text(first)
    with pytest.raises(SystemExit):
        run("fit", "--config", "printed.yaml", "--print_config")
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(first)
    assert yaml.safe_load(first)["model"]["init_args"]["aggregator"]["init_args"] == {"k": 3}
    assert "num_features" not in yaml.safe_load(first)["model"]["init_args"]
    run("fit", "--config", "printed.yaml")


MISTAKES = [
    (["--model.local.steps=0"], r"^error: steps \(I\) must be at least 1, got 0.\n$"),
    (["--model.aggregator.alpha=1.5"], r"^error: alpha must lie in \(0, 1\], got 1.5.\n$"),
    (
        ["--model.protocol=gram", "--model.encoder.bias=true"],
        "^error: protocol must be jacobian unless the encoder is two-lay",
    ),
    (["--data.lam=9"], "^error: lam must be at most √degree"),
    (
        ["--data=Planetoid", "--data.name=Citeseer"],
        "^error: name must be one of Cora, CiteSeer, PubMed, got 'Citeseer'",
    ),
    (["--trainer.precision=bf16-mixed"], "^error: precision must be 32-true or 64-true, got 'bf16-mixed'"),
    (["--trainer.accumulate_grad_batches=2"], "^error: accumulate_grad_batches must be left out"),
    (["--ckpt_path=none.ckpt"], "^error: ckpt_path must name a checkpoint file, got 'none.ckpt'"),
    (["--seed_everything=4"], "^error: seed_everything must be left out, as the seeds of model and data determine"),
    (["--seed_everything=0"], "^error: seed_everything must be left out, as the seeds of model and data determine"),
    (["--weights_only=false"], "weights_only"),
    (["--trainer.strategy=ddp"], "^error: strategy must be auto, as the federation is simulated in one process"),
    (
        ["--trainer.max_steps=-1", "--trainer.limit_train_batches=0.5"],
        "^error: limit_train_batches must be a number of",
    ),
    (["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.patiense=2"], "patiense"),
    (["--model.local.steps=ten"], "local.steps must be a whole number, got ten"),
    (["--model.nope=1"], "Option 'nope' is not accepted"),
    (["--model=Nothing"], "Expected an import path or a subclass spec|Nothing"),
    (["--config=none.yaml"], "none.yaml"),
    (["--model=Central", "--data=SC"], "^error: graph must have one sample per client for a centralised network"),
    (["--model=LocalMLPs", "--data=DNC"], "^error: graph must give every client a training sample, as each trains"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_gets_its_sentence_and_exit_code_2(
    run: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        run("fit", *arguments, "--trainer.enable_progress_bar=false")
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert re.search(sentence, shown.err), shown.err
    assert "Traceback" not in shown.err + shown.out
    assert not Path("runs").exists()


def test_checkpoints_that_do_not_fit_are_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", *SMALL, "--trainer.max_steps=3")
    best, last = str(newest() / "best.ckpt"), str(newest() / "checkpoints" / "last.ckpt")
    Path("junk.ckpt").write_text("junk")
    torch.save({"state_dict": {}}, "other.ckpt")
    karate = str(CONFIGS["dnc_karate"])
    for arguments, sentence in (
        (
            ("fit", *SMALL, "--ckpt_path", best),
            "ckpt_path must be a whole checkpoint to resume from, such as last.ckpt",
        ),
        (("fit", *SMALL, "--ckpt_path=junk.ckpt"), "ckpt_path must be a checkpoint of this program, got 'junk.ckpt', "),
        (("fit", *SMALL, "--ckpt_path=other.ckpt"), "ckpt_path must be a checkpoint of this program, got 'other.ckpt'"),
        (("test", "--config", karate, "--ckpt_path", last), "model.num_features must be left out or be 10, as in the"),
        (("test", *SMALL), "ckpt_path must name the checkpoint to test, got None"),
        (
            ("test", "--model=Central", *SMALL[:2], "--ckpt_path", best),
            "model must be left out or be 'GFL', as in the checkpoint, got 'Central'.",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            run(*arguments)
        assert stop.value.code == 2
        assert f"error: {sentence}" in capsys.readouterr().err


def test_a_resume_with_nothing_to_do_leaves_a_checkpoint_that_goes_on(run: Run) -> None:
    options = (*SMALL, "--model.server=Momentum", "--model.participation.share=0.5")
    run("fit", *options, "--trainer.max_steps=12")
    whole = json.loads((newest() / "summary.json").read_text())
    run("fit", *options, "--trainer.max_steps=6")
    for rounds in (6, 12):
        last = str(newest() / "checkpoints" / "last.ckpt")
        run("fit", *options, f"--trainer.max_steps={rounds}", "--ckpt_path", last)
    extended = json.loads((newest() / "summary.json").read_text())
    assert {**extended, "seconds": 0} == {**whole, "seconds": 0}


def test_callbacks_by_their_short_names_and_without_checkpoints(run: Run) -> None:
    Path("c.yaml").write_text(
        "trainer: {max_steps: 40, val_check_interval: 1, enable_checkpointing: false, enable_progress_bar: false,\n"
        "  callbacks: [{class_path: EarlyStopping, init_args: {monitor: val_loss, min_delta: 1, patience: 2}}]}\n"
        "model: {class_path: GFL, init_args: {encoder: {hidden: [8]}}}\n"
        "data: {class_path: DNC, init_args: {num_clients: 60}}\n"
    )
    run("fit", "--config=c.yaml")
    assert json.loads((newest() / "summary.json").read_text())["rounds"] == 3
    assert not list(newest().rglob("*.ckpt"))
    run(
        "fit",
        *SMALL,
        "--trainer.max_steps=4",
        "--trainer.callbacks=ModelCheckpoint",
        "--trainer.callbacks.monitor=val_loss",
    )


def test_divergence_ends_with_what_was_reached(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run(
            "fit",
            *SMALL,
            "--model.local.lr=0.5",
            "--model.lr_scheduler=torch.optim.lr_scheduler.StepLR",
            "--model.lr_scheduler.step_size=3",
            "--model.lr_scheduler.gamma=1e30",
            "--trainer.max_steps=9",
        )
    assert stop.value.code == 3
    shown = capsys.readouterr()
    assert "error: lr must be small enough for finite updates" in shown.err
    assert "in round 4" in shown.err
    assert "3 (30 updates" in shown.out
    assert json.loads((newest() / "summary.json").read_text())["status"] == "diverged"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_ends_with_the_summary_of_what_was_reached(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-m", "gfl_lightning", "fit", *SMALL, "--trainer.max_steps=1000000"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509  # else a background job ignores it
    )
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob("runs/gfl/version_0/checkpoints/*.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    shown, errors = process.communicate(timeout=600)
    assert process.returncode == code, errors
    assert "interrupted" in shown
    assert "Traceback" not in errors
    summary = json.loads((tmp_path / "runs/gfl/version_0/summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["rounds"] >= 10


def test_help_comes_without_loading_torch(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['gfl_lightning', '--help'];"
        "from gfl_lightning.__main__ import main; main(); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.startswith("usage: python -m gfl_lightning COMMAND")


NOISE = [
    "--trainer.callbacks=callbacks.DPNoise",
    "--trainer.callbacks.hidden.clip=1",
    "--trainer.callbacks.update.clip=1",
]
BUDGET = ["--trainer.callbacks+=callbacks.PrivacyBudget", "--trainer.callbacks.max_epsilon=4"]
V1 = ["fit", *SMALL, "--model.estimator=v1", "--trainer.max_steps=6"]


def test_a_private_fit_says_what_is_guaranteed_and_a_test_repeats_it(run: Run) -> None:
    shown = run(*V1, *NOISE, *BUDGET, "--trainer.callbacks.calibrate=true")
    assert re.search(r"privacy  ε = 4(\.0+)? against the server, [\d.]+ against a fellow client, at δ = 1e-05", shown)
    assert "unit: one client's whole data set, replaced by any other; composed: W_k + ĥ_j in 6 rounds" in shown
    summary = json.loads((newest() / "summary.json").read_text())
    assert 3.99 < summary["epsilon"] <= 4
    assert summary["delta"] == 1e-5
    assert summary["privacy"]["protection"]["hidden"]["std"] > 0
    tested = run("test", "--ckpt_path", str(newest() / "best.ckpt"), "--data=DNC", *SMALL[:2])
    accuracy = re.search(r"test_accuracy\s+│?\s*([\d.]+)", tested)
    assert accuracy is not None
    assert float(accuracy[1]) == pytest.approx(summary["test_accuracy"], abs=1e-6)


def test_noise_without_bounds_is_called_no_guarantee(run: Run) -> None:
    shown = run(*V1, "--trainer.callbacks=callbacks.DPNoise", "--trainer.callbacks.hidden.std=0.5")
    assert "privacy  no guarantee: ε = ∞, unprotected: ĥ_j (no bound), W_k (neither bound nor noise)" in shown
    assert json.loads((newest() / "summary.json").read_text())["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--trainer.callbacks=callbacks.DPNoise", "--trainer.callbacks.jacobian.std=1"],
            "jacobian noise must be 0 where the",
        ),
        (
            [*NOISE, *BUDGET],
            "max_epsilon must allow at least one round, which spends inf (ĥ_j (no noise), W_k (no noise)), got 4.0.",
        ),
        (
            [*NOISE, "--model.protocol=gram", "--model.estimator=compensated"],
            "protocol must be jacobian where uploads are",
        ),
    ],
)
def test_bad_protection_is_one_sentence_and_writes_nothing(
    arguments: list[str], message: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run(*V1, *arguments)
    assert stop.value.code == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


EXTENSION = '''
from dataclasses import dataclass
import torch
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism

@dataclass(frozen=True)
class Chain(DataSet):
    """Data of one's own."""
    length: int = 50
    def make(self):
        return DNC(self.length, 10).graph

@dataclass(frozen=True)
class OneHop(Aggregator):
    """An aggregator of one's own."""
    share: float = 0.5
    @property
    def gamma(self):
        return torch.tensor([1 - self.share, self.share], dtype=torch.float64)

@dataclass(frozen=True)
class Uniform(Mechanism):
    """A mechanism of one's own, which promises nothing."""
    width: float = 0.0
    clip: float = float("inf")
    @property
    def spread(self):
        return self.width
    def draw(self, shape, source):
        return self.width * (source.uniform(shape) - 0.5)
'''
OWN = ["--data=mine.Chain", "--data.length=60", "--model.aggregator=mine.OneHop", "--model.aggregator.share=0.25"]


def test_classes_of_ones_own_are_used_by_their_path_and_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(EXTENSION)
    monkeypatch.syspath_prepend(str(tmp_path))
    noise = ("--trainer.callbacks+=callbacks.DPNoise", "--trainer.callbacks.hidden=mine.Uniform")
    shown = run("fit", *OWN, *noise, "--trainer.callbacks.hidden.width=0.1", SMALL[3], "--trainer.max_steps=3")
    assert re.search(r"\n +data  Chain\(length=60\)\n", shown)
    assert re.search(r"\n +encoder  MLP\(hidden=\[64\], activation=relu, bias=False\)\n", shown)
    assert re.search(r"\n +aggregator  OneHop\(share=0.25\)\n", shown)
    assert re.search(r"\n +server  Average\(\)\n", shown)
    assert "protected by  hidden Uniform(width=0.1, clip=inf)" in shown
    summary = json.loads((newest() / "summary.json").read_text())
    assert summary["parts"]["aggregator"] == {"class_path": "mine.OneHop", "init_args": {"share": 0.25}}
    assert summary["parts"]["data"] == {"class_path": "mine.Chain", "init_args": {"length": 60}}
    assert summary["data"] == "Chain"
    assert summary["epsilon"] == "inf"
    accuracy = f"{summary['test_accuracy']:.4f}"
    assert accuracy in run("test", *OWN[:2], SMALL[3], "--ckpt_path", str(newest() / "best.ckpt"))


@pytest.mark.parametrize("extra", [[], ["--trainer.logger=false"], ["--trainer.logger=CSVLogger"]])
def test_everything_is_written_below_the_root_folder(run: Run, extra: list[str]) -> None:
    if extra and "CSV" in extra[0]:
        extra = [*extra, "--trainer.logger.save_dir="]
    run("fit", *SMALL, "--trainer.max_steps=2", "--trainer.default_root_dir=my folder", *extra)
    assert [path.name for path in Path().iterdir()] == ["my folder"]
    (summary,) = Path("my folder").rglob("summary.json")
    assert (summary.parent / "best.ckpt").is_file()
    assert (summary.parent / "checkpoints" / "last.ckpt").is_file()
    run("predict", *SMALL[:2], SMALL[3], "--ckpt_path", str(summary.parent / "best.ckpt"), *(
        "--trainer.default_root_dir=other", *extra))  # fmt: skip
    assert sorted(path.name for path in Path().iterdir()) == ["my folder", "other"]
    assert list(Path("other").rglob("predictions.csv"))


def test_without_a_root_folder_or_a_logger_runs_is_it(run: Run) -> None:
    run("fit", *SMALL, "--trainer.max_steps=2", "--trainer.logger=false")
    assert [path.name for path in Path().iterdir()] == ["runs"]
    assert Path("runs/summary.json").is_file()


def test_a_home_folder_may_be_meant(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    run("fit", *SMALL, "--trainer.max_steps=1", "--trainer.default_root_dir=~/x")
    assert [path.name for path in Path().iterdir()] == ["home"]
    assert list((tmp_path / "home" / "x").rglob("summary.json"))


def test_a_checkpoint_brings_the_options_of_its_model_where_none_is_named(run: Run) -> None:
    model = ("--model.aggregator=SGC", "--model.aggregator.k=2", "--model.server=FedAdam", "--model.local.steps=3")
    run("fit", *SMALL, *model, "--trainer.max_steps=8")
    whole = json.loads((newest() / "summary.json").read_text())
    run("fit", *SMALL, *model, "--trainer.max_steps=4")
    last = str(newest() / "checkpoints" / "last.ckpt")
    run("fit", *SMALL[:2], SMALL[3], "--trainer.max_steps=8", "--ckpt_path", last)
    assert {**json.loads((newest() / "summary.json").read_text()), "seconds": 0} == {**whole, "seconds": 0}
