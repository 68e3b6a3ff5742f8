"""The W&B callback with the real wandb, offline: what it wrote is read back from the run's own file."""

from __future__ import annotations

import csv
import json
import math
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from lit_types import Given
from matplotlib.figure import Figure
from PIL import Image
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers import CSVLogger, WandbLogger
from wandb.proto.wandb_internal_pb2 import Record

from callbacks import WandbRounds, wandb_rounds
from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.data import ClientGraphData
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.theory.connectivity import connectivity
from gfl_lightning.theory.drift import client_drift
from gfl_lightning.theory.gradient import gradient_norm_squared

ROUNDS, EVERY = 7, 3
BLOCK = 32768
QUIET: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def records(file: Path) -> Iterator[Record]:
    """The records of a ``.wandb`` file: a LevelDB log in blocks of 32 KiB, the first of which opens with 7 bytes."""
    content = file.read_bytes()
    assert content[:4] in (b":W&B", b"")
    position, pending = 7, b""
    while position + 7 <= len(content):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        if position + 7 + length > len(content):
            return  # the rest is still to be written
        pending += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(pending)
            pending = b""


def whole(file: Path, patience: float = 600.0) -> list[Record]:
    """All records of a finished run: W&B's service may write the last of them after ``finish`` has returned."""
    until = time.monotonic() + patience
    while True:
        read = list(records(file))
        if any(record.HasField("exit") for record in read):
            return read
        assert time.monotonic() < until, f"{file} has no end"
        time.sleep(0.1)


def items(entries: Any) -> dict[str, Any]:
    return {".".join(entry.nested_key) or entry.key: json.loads(entry.value_json) for entry in entries}


@dataclass
class Written:
    """A finished offline run: its history rows and summary, its files, the CSV beside it, and the model."""

    history: list[dict[str, Any]]
    summary: dict[str, Any]
    files: Path
    table: list[dict[str, str]]
    module: RoundModule

    def column(self, name: str) -> dict[int, Any]:
        """Values of a metric by step."""
        return {int(row["trainer/global_step"]): row[name] for row in self.history if name in row}

    def images(self) -> list[str]:
        """Names of the images, each checked to be one that shows something."""
        for file in (self.files / "media" / "images").iterdir():
            with Image.open(file) as image:
                assert image.size[0] > 600
                assert len(set(image.convert("RGB").getdata())) > 50
        return sorted(name.removesuffix("._type") for row in self.history for name in row if name.endswith("._type"))


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """W&B without account or network: a connection to any other machine fails the test."""
    folder = tmp_path_factory.mktemp("wandb")
    connect = socket.socket.connect

    def only_here(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"), address
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", only_here)
        for name, value in {"MODE": "offline", "SILENT": "true", "BASE_URL": "http://127.0.0.1:9"}.items():
            patch.setenv(f"WANDB_{name}", value)
        for name in ("DIR", "CACHE_DIR", "CONFIG_DIR", "DATA_DIR"):
            patch.setenv(f"WANDB_{name}", str(folder))
        patch.delenv("WANDB_API_KEY", raising=False)
        yield folder
        wandb.teardown()


def run(folder: Path, module: RoundModule, data: DataSet) -> Written:
    """Fit, finish the run, read it back."""
    trainer = FederatedTrainer(
        max_steps=ROUNDS,
        logger=[WandbLogger(offline=True, save_dir=folder), CSVLogger(folder, "csv")],
        callbacks=[WandbRounds(EVERY)],
        enable_checkpointing=False,
        **QUIET,
    )
    trainer.fit(module, data)
    wandb.finish()
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    (metrics,) = folder.glob("csv/*/metrics.csv")
    read = whole(file)
    history = [items(record.history.item) for record in read if record.HasField("history")]
    summary = {name: value for record in read for name, value in items(record.summary.update).items()}
    with metrics.open() as stream:
        return Written(history, summary, file.parent / "files", list(csv.DictReader(stream)), module)


@pytest.fixture(scope="module")
def written(offline: Path) -> Written:
    """A federation on a connected graph."""
    return run(offline / "federation", GFL(100, 2, local=LocalTraining(steps=5)), DNC(num_clients=60))


def federated(written: Written) -> GFL:
    assert isinstance(written.module, GFL)
    return written.module


def test_every_round_is_a_row(written: Written) -> None:
    for name in ("train_loss", "val_loss", "val_accuracy", "bytes_up", "bytes_down", "clients_trained"):
        assert list(written.column(name)) == list(range(ROUNDS)), name
    assert min(written.column("val_loss").values()) == pytest.approx(written.module.best.val_loss)


def test_drift_and_gradient_norm_are_those_of_their_rounds(written: Written) -> None:
    federation = federated(written).federation
    state, drift, norm = federation.start(), {}, {}
    for number in range(ROUNDS):
        before = state
        state, _ = federation.round(state)
        if (number + 1) % EVERY == 0:
            drift[number] = client_drift(federation, before)
            norm[number] = gradient_norm_squared(federation, state.weights)
    assert list(drift) == [2, 5]
    assert written.column("drift") == pytest.approx(drift)
    assert written.column("grad_norm_squared") == pytest.approx(norm)
    in_csv = {int(row["step"]): float(row["drift"]) for row in written.table if row["drift"]}
    assert in_csv == pytest.approx(drift)


def test_connectivity_is_logged_once_in_numbers_and_in_words(written: Written) -> None:
    graph = federated(written).federation.graph
    found = {"lambda_max": connectivity(graph), "lambda_max_training": connectivity(graph, graph.training_clients)}
    for name, one in found.items():
        assert math.isfinite(one.lambda_max)
        assert written.column(name) == {0: pytest.approx(one.lambda_max)}
        assert written.summary[f"{name}_sentence"] == str(one)


def test_table_holds_the_best_rounds_metrics(written: Written) -> None:
    (file,) = (written.files / "media" / "table").glob("best_model*.json")
    table = json.loads(file.read_text())
    assert table["columns"] == ["split", "loss", "client_loss", "accuracy", "client_accuracy"]
    best = federated(written).federation.metrics_of(written.module.best.weights)
    expected = [[split, *map(pytest.approx, vars(metrics).values())] for split, metrics in best.items()]
    assert table["data"] == expected


def test_figures_are_images(written: Written) -> None:
    assert written.images() == ["best_model", "client_graph", "loss_curves"]


def test_the_fit_is_left_as_it_was(written: Written) -> None:
    module = federated(written)
    assert all(torch.equal(module.get_parameter(n), weight) for n, weight in module.state.weights.items())
    alone = GFL(100, 2, local=LocalTraining(steps=5))
    trainer = FederatedTrainer(max_steps=ROUNDS, logger=False, enable_checkpointing=False, **QUIET)
    trainer.fit(alone, datamodule=DNC(num_clients=60))
    assert all(torch.equal(alone.state.weights[n], weight) for n, weight in module.state.weights.items())


def apart() -> ClientGraph:
    """DNC with client 0 cut off."""
    whole = DNC(num_clients=60).graph
    columns = {name: getattr(whole, name) for name in ("x", "y", "client", "split", "shared", "num_classes")}
    return ClientGraph.from_edges(**columns, edge_index=whole.edge_index[:, (whole.edge_index > 0).all(0)])


def test_a_baseline_on_a_graph_in_pieces_gets_all_but_what_needs_a_federation(offline: Path) -> None:
    found = run(offline / "central", Central(100, 2), Given(apart()))
    assert list(found.column("val_loss")) == list(range(ROUNDS))
    assert not any(found.column(name) for name in ("drift", "grad_norm_squared", "lambda_max"))
    assert found.summary["lambda_max_sentence"].startswith("λ_max(B_N L†) is infinite: the 60 clients form 2 comp")
    assert found.images() == ["best_model", "client_graph", "loss_curves"]


def test_a_resumed_fit_draws_the_losses_of_all_its_rounds(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []

    def note(rounds: list[int], curves: dict[str, list[float]], best_round: int | None) -> Figure:
        drawn.append((rounds, curves, best_round))
        return Figure()

    monkeypatch.setattr(wandb_rounds, "loss_curves", note)

    def fit(rounds: int, ckpt_path: Path | None = None) -> FederatedTrainer:
        trainer = FederatedTrainer(
            max_steps=rounds,
            logger=WandbLogger(mode="disabled"),
            callbacks=[WandbRounds()],
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            **QUIET,
        )
        trainer.fit(GFL(100, 2), datamodule=DNC(num_clients=60), ckpt_path=ckpt_path)
        wandb.finish()
        return trainer

    fit(3).save_checkpoint(tmp_path / "three.ckpt")
    fit(5, tmp_path / "three.ckpt")
    fit(5)
    assert drawn[1] == drawn[2]
    assert drawn[1][0] == (1, 2, 3, 4, 5)


def fit_with(model: LightningModule, kind: type[Trainer] = FederatedTrainer, **options: Any) -> None:
    trainer = kind(callbacks=[WandbRounds()], max_steps=2, enable_checkpointing=False, **QUIET, **options)
    trainer.fit(model, datamodule=ClientGraphData(DNC(num_clients=60)))


def test_without_a_wandb_logger_no_round_is_made(tmp_path: Path) -> None:
    model = GFL(100, 2)
    with pytest.raises(InputError, match=r"WandbRounds must be used with a WandbLogger, got \['CSVLogger'\]\."):
        fit_with(model, logger=CSVLogger(tmp_path))
    with pytest.raises(InputError, match=r"WandbRounds must be used with a WandbLogger, got \[\]\."):
        fit_with(model, logger=False)
    assert not model.round_metrics


def test_a_trial_run_makes_its_round_without_a_wandb_logger() -> None:
    model = GFL(100, 2)
    fit_with(model, logger=False, fast_dev_run=True)
    assert model.round_metrics


def test_other_models_are_refused(offline: Path) -> None:
    with pytest.raises(InputError, match=r"must be used with a model that trains in rounds, got BoringModel\."):
        fit_with(BoringModel(), Trainer, logger=WandbLogger(mode="disabled"))
    wandb.finish()


def test_every_n_rounds_is_checked() -> None:
    with pytest.raises(InputError, match=r"every_n_rounds must be at least 1, got 0\."):
        WandbRounds(0)
