"""Checkpoints are data, whole and sealed: nothing in one is run, no damage is overlooked, its options are in force."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.fingerprint import fingerprint
from gfl_lightning.lit import cli
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.sealed_files import previous_of, read_sealed, seal, write_sealed

SMALL = ["--data.num_clients=60", "--data.num_features=10"]
MODEL = ["--model.encoder.hidden=[8]", "--model.local.steps=3", "--model.aggregator.alpha=0.3"]
QUIET = ["--trainer.enable_progress_bar=false"]
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in an empty folder: exit code, output, error text."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        quiet = [*QUIET, "--report=false"] if arguments[0] == "fit" else QUIET
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *arguments, *quiet])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def newest() -> Path:
    return max(Path("runs/gfl").iterdir(), key=lambda run: int(run.name.split("_")[1]))


@pytest.fixture
def fitted(run: Run) -> Path:
    assert run("fit", *SMALL, *MODEL, "--trainer.max_steps=6")[0] == 0
    return newest()


def resealed(file: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """A checkpoint with something changed by someone who knows how to seal it."""
    content = read_sealed(file, "file")
    change(content)
    other = file.with_name("other.ckpt")
    other.write_bytes(seal(content))
    return str(other)


@pytest.mark.parametrize("command", ["test", "predict", "fit"])
def test_no_option_of_a_checkpoint_is_imported_or_run(
    run: Run, fitted: Path, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "harmful.py").write_text("from pathlib import Path\nPath('owned').touch()\nclass Model: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    program = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "owned"]}}
    attacks: list[tuple[str, Any]] = [
        ("lr_scheduler", program),
        ("_class_path", "harmful.Model"),
        ("_instantiator", "harmful.Model"),
        ("aggregator", {"class_path": "harmful.Model", "init_args": {}}),
        ("seed", program),
        ("encoder", {"class_path": "gfl_lightning.models.encoders.mlp.MLP", "init_args": {"hidden": program}}),
    ]
    for name, value in attacks:
        file = resealed(
            fitted / "checkpoints/last.ckpt", lambda c, n=name, v=value: c["hyper_parameters"].update({n: v})
        )
        code, _, error = run(command, *SMALL, "--ckpt_path", file)
        assert (code, error[:7], error.count("\n")) == (2, "error: ", 1), error
        if name != "_class_path":  # there the class is the caller's
            with pytest.raises(InputError):
                GFL.load_from_checkpoint(file)
    harmful = {"class_path": "harmful.Data", "init_args": {}}
    file = resealed(fitted / "checkpoints/last.ckpt", lambda c: c["ClientGraphData"].update(options=harmful))
    assert "ckpt_path must hold a data set of this program" in run(command, "--ckpt_path", file)[2]
    assert not Path("owned").exists()


def test_no_file_that_a_checkpoint_names_is_removed_or_made(run: Run, fitted: Path, tmp_path: Path) -> None:
    """Lightning removes what the state of a `ModelCheckpoint` names; a ledger would be made where its name says."""
    Path("precious").write_text("mine")
    folder = fitted.with_name("version_1") / "checkpoints"
    inside = f"{folder}/{'../' * len(folder.parts)}precious"
    assert Path(inside).resolve() == Path("precious").resolve() or not folder.exists()
    spare = fitted / "best.ckpt"
    for name in (inside, f"{folder}/../../{fitted.name}/best.ckpt", str(Path("precious").resolve())):

        def named(content: dict[str, Any], name: str = name) -> None:
            for state in (one for key, one in content["callbacks"].items() if "ModelCheckpoint" in key):
                state |= {"best_model_path": name, "kth_best_model_path": name, "dirpath": str(folder.absolute())}
                state |= {"last_model_path": name, "best_k_models": {name: torch.tensor(9.0)}}

        last = resealed(fitted / "checkpoints/last.ckpt", named)
        code, _, error = run("fit", "--ckpt_path", last, "--trainer.max_steps=60")
        assert code == 0, error
        assert Path("precious").read_text() == "mine"
        assert spare.is_file()
        shutil.rmtree(newest())

    def counted(content: dict[str, Any]) -> None:
        content["hyper_parameters"]["guarantee"]["init_args"] |= {"ledger": "made/by.ckpt", "max_epsilon": 9.0}

    for command in ("fit", "test", "predict"):
        last = resealed(fitted / "checkpoints/last.ckpt", counted)
        code, _, error = run(command, *([] if command == "fit" else SMALL), "--ckpt_path", last)
        assert (code, "ledger must be there" in error) == (2, True), error
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("terms", {"gate": {}, "B": torch.zeros(60, 2, 1)}),
        ("terms", {}),
        ("shared", "h"),
        ("chosen", "os.system"),
        ("records", 3),
        ("records_gaps", [torch.zeros(2)]),
        ("noise_key", torch.zeros(2)),
        ("protection", {"claims": True}),
    ],
)
def test_what_clients_keep_is_checked_before_it_is_used(run: Run, fitted: Path, name: str, value: Any) -> None:
    file = resealed(fitted / "checkpoints/last.ckpt", lambda c: c.update({name: value}))
    code, _, error = run("test", *SMALL, "--ckpt_path", file)
    assert (code, error.startswith("error: ckpt_path must hold "), error.count("\n")) == (2, True, 1), error


@pytest.mark.parametrize("made", [torch.zeros(2), {"rounds": torch.zeros(2)}, {"rounds": True}, {"rounds": 3.0}, {}])
def test_a_count_of_rounds_that_is_none_is_one_sentence(run: Run, fitted: Path, made: Any) -> None:
    file = resealed(fitted / "checkpoints/last.ckpt", lambda c: c["loops"].update(fit_loop=made))
    code, _, error = run("test", *SMALL, "--ckpt_path", file)
    assert (code, error.count("\n")) == (2, 1), error
    assert error.startswith("error: ckpt_path must hold a number of rounds")


def test_every_flipped_bit_and_every_cut_is_noticed(fitted: Path) -> None:
    blob = (fitted / "best.ckpt").read_bytes()
    generator = torch.Generator().manual_seed(0)
    for place in torch.randint(len(blob), (200,), generator=generator).tolist():
        for damaged in (blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :], blob[:place]):
            with pytest.raises(InputError, match=r"must be a (whole )?checkpoint"):
                read_sealed(io.BytesIO(damaged), "file")
    assert "state_dict" in read_sealed(io.BytesIO(blob), "file")
    assert "state_dict" in torch.load(fitted / "best.ckpt", weights_only=True)  # others can read it too


def test_another_version_and_what_is_no_plain_data_are_refused(tmp_path: Path) -> None:
    blob = seal({"a": 1})
    with pytest.raises(InputError, match="be a checkpoint of version 2, got 'a stream of 1'"):
        read_sealed(io.BytesIO(blob.replace(b"gfl_lightning 0002", b"gfl_lightning 0001")), "file")
    for content in (
        {"a": object()},
        {"a": torch.zeros(1).expand(10**12)},
        {(1, 2): 3},
        {"a": [torch.eye(2).to_sparse()]},
    ):
        with pytest.raises(InputError, match=r"^c.ckpt must (hold|have)"):
            write_sealed(content, tmp_path / "c.ckpt")
    assert not list(tmp_path.iterdir())


def test_containers_that_hold_each_other_without_end_are_refused(tmp_path: Path) -> None:
    around: list[Any] = []
    around.append(around)
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    twice: list[Any] = [1]  # a few bytes, and more values than anyone can look at
    for _ in range(50):
        twice = [twice, twice]
    for content, rule in (
        (around, "at most 64 deep in each other"),
        ({"a": deep}, "at most 64 deep in each other"),
        ({"a": (1, twice)}, "no more values than its bytes can say"),
    ):
        with pytest.raises(InputError, match=rule):
            read_sealed(io.BytesIO(seal(content)), "file")
    with pytest.raises(InputError, match="at most 64 deep"):
        write_sealed({"a": deep}, tmp_path / "c.ckpt")
    assert read_sealed(io.BytesIO(seal([[1, [2]]] * 100)), "file") == [[1, [2]]] * 100


def test_a_full_disk_leaves_the_last_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "last.ckpt"
    write_sealed({"rounds": 1}, file)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, full)
            with pytest.raises(OSError, match="No space"):
                write_sealed({"rounds": 2}, file)
        assert read_sealed(file, "file") == {"rounds": 1}
    write_sealed({"rounds": 3}, file)
    assert read_sealed(previous_of(file), "file") == {"rounds": 1}
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"the one before it is '.*last.previous.ckpt'"):
        read_sealed(file, "file")


def test_a_checkpoint_is_written_in_its_own_folder_without_the_temporary_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/proc")  # nothing can be written there
    assert run("fit", *SMALL, "--trainer.max_steps=60")[0] == 0
    assert sorted(file.name for file in (newest() / "checkpoints").glob("last*")) == ["last.ckpt", "last.previous.ckpt"]


def test_the_options_of_the_checkpoint_are_tested_and_what_is_said_otherwise_is_printed(run: Run, fitted: Path) -> None:
    accuracy = f"{json.loads((fitted / 'summary.json').read_text())['test_accuracy']:.4f}"
    Path("c.yaml").write_text(
        "model: {class_path: GFL, init_args: {encoder: {hidden: [8]}, local: {steps: 9}}}\ndata: {class_path: DNC}\n"
    )
    best = ["--ckpt_path", str(fitted / "best.ckpt")]
    for arguments in (["--config=c.yaml"], [], SMALL, ["--data=DNC"]):
        code, out, error = run("test", *arguments, *best)
        assert (code, accuracy in out) == (0, True), (arguments, error)
        said = "note: model.local.steps is 3 as in the checkpoint, not 9 as the command line says.\n" in error
        assert said == (arguments == ["--config=c.yaml"])
    error = run("test", *best, "--data.num_clients=80")[2]
    assert "note: data.num_clients is 80, while the model was trained with 60.\n" in error


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--model.local.steps=4", "model.local.steps must be left out or be 3, as in the checkpoint, got 4."),
        ("--model.seed=4", "model.seed must be left out or be 0, as in the checkpoint, got 4."),
        ("--model=Central", "model must be left out or be 'GFL', as in the checkpoint, got 'Central'."),
        ("--data.graph_seed=1", "data.graph_seed must be left out or be 0, as in the checkpoint, got 1."),
        ("--data=KarateClub", "data must be the data that the run of the checkpoint began with (DNC), got"),
        ("--trainer.precision=64-true", "precision must be 32-true as in the checkpoint, got '64-true'."),
        ("--model.lr_scheduler=torch.optim.lr_scheduler.ConstantLR", "lr_scheduler must be None as in the checkpoint"),
    ],
)
def test_a_run_goes_on_with_its_own_options_and_data_or_not_at_all(
    run: Run, fitted: Path, option: str, sentence: str
) -> None:
    last = ["--ckpt_path", str(fitted / "checkpoints/last.ckpt"), "--trainer.max_steps=9"]
    code, _, error = run("fit", *last, option)
    if option == "--data=KarateClub":
        sentence = "model.num_features must be left out or be 10, as in the checkpoint, got 34."
    assert (code, error.strip()[-len(sentence) :] == sentence or sentence in error) == (2, True), error


def test_a_run_goes_on_without_saying_anything_again(run: Run, fitted: Path) -> None:
    code, _, error = run("fit", "--ckpt_path", str(fitted / "checkpoints/last.ckpt"), "--trainer.max_steps=12")
    assert code == 0, error
    resumed = json.loads((newest() / "summary.json").read_text())
    run("fit", *SMALL, *MODEL, "--trainer.max_steps=12")
    assert resumed | {"seconds": 0} == json.loads((newest() / "summary.json").read_text()) | {"seconds": 0}


def test_other_labels_are_other_data(run: Run, fitted: Path) -> None:
    other = resealed(fitted / "checkpoints/last.ckpt", lambda c: c["ClientGraphData"].update(fingerprint="0"))
    code, _, error = run("fit", "--ckpt_path", other, "--trainer.max_steps=9")
    assert (code, "data must be the data that the run of the checkpoint began with" in error) == (2, True)
    assert fingerprint(DNC(60, 10).graph) != fingerprint(DNC(60, 10, repetition=1).graph)


def test_a_scheduler_must_be_named_again(run: Run, fitted: Path) -> None:
    scheduler = ["--model.lr_scheduler=torch.optim.lr_scheduler.StepLR", "--model.lr_scheduler.step_size=2"]
    run("fit", *SMALL, *MODEL, *scheduler, "--trainer.max_steps=5")
    last = ["--ckpt_path", str(newest() / "checkpoints/last.ckpt"), "--trainer.max_steps=8"]
    assert "error: lr_scheduler must be {'class': 'StepLR', 'step_size': 2" in run("fit", *last)[2]
    assert "got {'class': 'StepLR', 'step_size': 3" in run("fit", *last, scheduler[0], scheduler[1][:-1] + "3")[2]
    assert run("fit", *last, *scheduler)[0] == 0


NOISE = [f"--model.protection.{kind}.{name}=1" for kind in ("hidden", "jacobian", "update") for name in ("std", "clip")]


def test_what_stands_of_a_protection_is_of_its_kind(run: Run) -> None:
    run("fit", *SMALL, *NOISE, "--trainer.max_steps=2")
    whole = newest() / "checkpoints/last.ckpt"
    kept = read_sealed(str(whole), "ckpt_path")["protection"]
    for name in kept:
        file = resealed(whole, lambda content, name=name: content["protection"].update({name: torch.zeros(2)}))
        code, _, error = run("test", *SMALL, "--ckpt_path", file)
        assert (code, error.count("\n")) == (2, 1), (name, error)
        assert f" as {name} in the protection, got 'Tensor'." in error


def test_a_private_run_that_is_over_keeps_its_account(run: Run) -> None:
    run("fit", *SMALL, *NOISE, "--trainer.max_steps=4")
    whole = json.loads((newest() / "summary.json").read_text())
    run("fit", "--ckpt_path", str(newest() / "checkpoints/last.ckpt"), "--trainer.max_steps=4")
    again = json.loads((newest() / "summary.json").read_text())
    assert whole["epsilon"] is not None
    assert again | {"seconds": 0} == whole | {"seconds": 0}
