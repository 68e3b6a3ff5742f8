"""Tables in, predictions out, through the command line: fit, test, predict, new clients, and unsafe files."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from graph_builders import assert_same_bits, random_clients
from table_builders import clinics

from gfl_lightning.__main__ import main
from gfl_lightning.checks import InputError
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.client_graph_file import ClientGraphFile
from gfl_lightning.graphs.tables.client_tables import ClientTables, TableWarning
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.sealed_files import seal

Run = Callable[..., str]
QUIET = "--trainer.enable_progress_bar=false"
TABLES = ("--data=ClientTables", "--data.samples=s.csv", "--data.edges=e.csv")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in a folder with two tables, s.csv and e.csv."""
    monkeypatch.chdir(tmp_path)
    samples, edges = clinics()
    samples.to_csv("s.csv", index=False)
    edges.to_csv("e.csv", index=False)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", *arguments])
        main()
        return capsys.readouterr().out

    return call


@pytest.fixture
def failing(run: Run, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must end with exit code 2; its error text."""

    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stop:
            run(*arguments)
        assert stop.value.code == 2
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err + shown.out
        return shown.err

    return call


def newest() -> Path:
    return max(Path("runs/gfl").iterdir(), key=lambda one: int(one.name.split("_")[1]))


def fit(run: Run, *more: str) -> str:
    run(
        "fit",
        "--model=GFL",
        "--model.encoder.hidden=[8]",
        *TABLES,
        "--data.task=sc",
        "--trainer.max_steps=20",
        "--report=false",
        QUIET,
        *more,
    )
    return str(newest() / "best.ckpt")


def test_from_tables_to_predictions_and_a_report(run: Run) -> None:
    best = fit(run, "--data.missing=indicator")
    summary = json.loads((newest() / "summary.json").read_text())
    shown = run("test", *TABLES, "--ckpt_path", best, QUIET)
    assert f"accuracy  {summary['test_accuracy']:.4f}" in shown
    report = pd.read_csv(newest() / "clients.csv")
    assert list(report.columns) == [
        "client", "samples", "training_samples", "accuracy", "balanced_accuracy", "f1", "auroc", "log_loss",
        "calibration_error",
    ]  # fmt: skip
    assert list(report["client"]) == sorted(f"clinic {k}" for k in range(12))
    assert np.average(report["accuracy"], weights=report["samples"]) == pytest.approx(summary["test_accuracy"])
    assert (newest() / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")

    assert "predictions of 144 samples" in run("predict", *TABLES, "--ckpt_path", best, QUIET)
    table, samples = pd.read_csv(newest() / "predictions.csv"), pd.read_csv("s.csv")
    assert list(table.columns) == ["client", "sample", "predicted", "true", "split", "p_ill", "p_well"]
    assert list(table["true"]) == list(samples["label"])
    assert dict(table["split"].value_counts()) == {"train": 86, "test": 29, "val": 29}
    assert list(table["client"]) == list(samples["client"])
    assert list(table["sample"]) == list(samples["id"])
    assert np.allclose(table["p_ill"] + table["p_well"], 1, atol=2e-6)
    assert list(table["predicted"]) == list(np.where(table["p_ill"] > 0.5, "ill", "well"))
    assert (table["predicted"] == samples["label"]).mean() > 0.6
    run("predict", *TABLES, "--ckpt_path", best, QUIET, "--output=out/p.parquet")
    typed = pd.read_parquet("out/p.parquet")
    np.testing.assert_allclose(typed["p_ill"], table["p_ill"], atol=1e-6)
    assert [path.name for path in Path("out").iterdir()] == ["p.parquet"]


def test_new_rows_and_new_clients_need_nothing_but_the_checkpoint(run: Run) -> None:
    best = fit(run)
    samples, edges = pd.read_csv("s.csv"), pd.read_csv("e.csv")
    Path("s.csv").unlink()
    Path("e.csv").unlink()
    new = samples.drop(columns=["label", "id"])
    joined = new[new["client"] == "clinic 0"].assign(client="joined later", ward="unseen")
    pd.concat([new, joined]).to_csv("new.csv", index=False)
    pd.concat([edges, pd.DataFrame([("joined later", "clinic 3")], columns=["a", "b"])]).to_csv("ne.csv", index=False)
    anew = ("--data=ClientTables", "--data.samples=new.csv", "--data.edges=ne.csv", "--data.representations=rows")
    run("predict", "--ckpt_path", best, *anew, QUIET)
    table = pd.read_csv(newest() / "predictions.csv")
    assert list(table["client"][-12:]) == ["joined later"] * 12
    assert list(table["sample"]) == list(range(1, len(table) + 1))
    again = ClientTables("new.csv", "ne.csv", encoding=best, representations="rows")
    model = GFL.load_from_checkpoint(best)
    model.prepare(again.graph)
    p = torch.softmax(model.predict_logits(), -1)
    np.testing.assert_allclose(table[["p_ill", "p_well"]], p, atol=1e-6)

    alone = pd.read_csv("ne.csv").query("a != 'joined later'")
    alone.to_csv("alone.csv", index=False)
    with pytest.warns(TableWarning, match="13 clients falls into 2 components, 1 of them a single client"):
        other = ClientTables("new.csv", "alone.csv", encoding=best, representations="rows").graph
    model.prepare(other)
    assert not torch.allclose(torch.softmax(model.predict_logits(), -1)[-12:], p[-12:])


def test_a_fit_on_tables_resumes_to_the_same_bits(run: Run) -> None:
    fit(run, "--data.class_weights=balanced")
    whole = torch.load(newest() / "best.ckpt", weights_only=True)
    fit(run, "--data.class_weights=balanced", "--trainer.max_steps=9")
    last = str(newest() / "checkpoints" / "last.ckpt")
    fit(run, "--data.class_weights=balanced", "--ckpt_path", last)
    resumed = torch.load(newest() / "best.ckpt", weights_only=True)
    for name, weight in whole["state_dict"].items():
        assert torch.equal(weight, resumed["state_dict"][name])
    assert torch.equal(whole["shared"], resumed["shared"])
    kept = [one["ClientGraphData"] for one in (whole, resumed)]
    assert torch.equal(*(one["network"].pop("edges") for one in kept))
    assert kept[0] == kept[1]


def test_mistakes_in_tables_end_with_their_list_and_nothing_written(failing: Run) -> None:
    Path("e.csv").write_text("a,b,weight\nclinic 1,nowhere,1\nclinic 1,clinic 2,-1\n")
    shown = failing("fit", "--model=GFL", *TABLES, "--data.task=sc", QUIET)
    assert shown.startswith("error: tables must be without mistakes, got 2:\n")
    assert "  e.csv line 2, column 'b': client 'nowhere' is unknown: it has no rows in s.csv\n" in shown
    assert "  e.csv line 3, column 'weight': a weight must be a finite number of at least 0, got -1" in shown
    assert not Path("runs").exists()


def test_other_mistakes_get_their_sentence(
    run: Run, failing: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = fit(run)
    pd.read_csv("s.csv").drop(columns="label").to_csv("unlabelled.csv", index=False)
    last = str(newest() / "checkpoints" / "last.ckpt")
    unlabelled = ("--data=ClientTables", "--data.edges=e.csv", "--data.samples=unlabelled.csv")
    for arguments, sentence in (
        (("predict", *TABLES, "--data.task=snc", "--ckpt_path", best), "task must be left out or be 'sc'"),
        (("predict", *TABLES, "--ckpt_path", best, "--output=p.xlsx"), "output must end in .csv or .parquet, got"),
        (("fit", *unlabelled, "--ckpt_path", last), "graph must have at least one training sample"),
    ):
        assert sentence in failing(*arguments, QUIET)
    with pytest.raises(InputError, match="task must be one of dnc, snc, sc, got None"):
        ClientTables("s.csv", "e.csv")
    with pytest.raises(InputError, match="class_weights must give a weight for each of ill, well"):
        _ = ClientTables("s.csv", "e.csv", encoding=best, class_weights={"ill": 2.0}).graph
    with pytest.raises(InputError, match=r"path must name a file, got 'none\.pt'"):
        _ = ClientGraphFile("none.pt").graph
    Path("e.csv").write_text("a,b\nclinic 1,clinic 2\n")
    with warnings.catch_warnings():
        warnings.simplefilter("always", TableWarning)
        anew = "--data.representations=rows"
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", "predict", *TABLES, anew, "--ckpt_path", best, QUIET])
        main()
    assert "warning: e.csv: the graph of 12 clients falls into 11 components" in capsys.readouterr().err


def test_rounds_on_a_graph_that_lacks_training_samples_are_refused(run: Run) -> None:
    best = fit(run)
    pd.read_csv("s.csv").drop(columns="label").to_csv("s.csv", index=False)
    data = ClientTables("s.csv", "e.csv", encoding=best)
    trainer = FederatedTrainer(max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with pytest.raises(InputError, match=r"graph must have at least one training sample"):
        trainer.fit(GFL(data.graph.num_features, 2), datamodule=data)


def test_a_checkpoint_and_tables_that_do_not_fit_are_told(run: Run, tmp_path: Path) -> None:
    best = fit(run)
    other = clinics(seed=5)[0]
    other.to_csv("s.csv", index=False)
    trainer = FederatedTrainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    model = GFL.load_from_checkpoint(best)
    with pytest.raises(InputError, match="encoding must name the checkpoint, as its model reads tables in another way"):
        trainer.test(model, datamodule=ClientTables("s.csv", "e.csv", task="sc"), ckpt_path=best)
    trainer.test(model, datamodule=ClientTables("s.csv", "e.csv", encoding=best), ckpt_path=best, verbose=False)


def test_models_of_single_clients_are_not_given_to_others(run: Run) -> None:
    data = ClientTables("s.csv", "e.csv", task="sc")
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = FederatedTrainer(max_steps=3, **quiet)
    trainer.fit(LocalMLPs(data.graph.num_features, 2, 12), datamodule=data)
    trainer.save_checkpoint("local.ckpt")
    renamed = pd.read_csv("s.csv").replace("clinic 3", "a new clinic")
    renamed.to_csv("renamed.csv", index=False)
    pd.read_csv("e.csv").replace("clinic 3", "a new clinic").to_csv("re.csv", index=False)
    model = LocalMLPs.load_from_checkpoint("local.ckpt")
    same, others = (
        ClientTables(*files, encoding="local.ckpt") for files in (("s.csv", "e.csv"), ("renamed.csv", "re.csv"))
    )
    FederatedTrainer(**quiet).test(model, datamodule=same, ckpt_path="local.ckpt", verbose=False)
    with pytest.raises(InputError, match="samples must have clients of the checkpoint only, each with its model"):
        FederatedTrainer(**quiet).test(model, datamodule=others, ckpt_path="local.ckpt", verbose=False)


class Malicious:
    """An object whose unpickling writes a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (Path("owned"), "by a checkpoint")


def test_loading_runs_no_code(run: Run, failing: Run) -> None:
    best = fit(run)
    checkpoint = torch.load(best, weights_only=True)
    checkpoint["ClientGraphData"]["encoding"]["extra"] = Malicious()
    Path("bad.ckpt").write_bytes(seal(checkpoint))
    torch.save(Malicious(), "bad.pt")
    Path("plain.ckpt").write_bytes(pickle.dumps(Malicious(), protocol=2))
    for command in ("test", "predict", "fit"):
        for file in ("bad.ckpt", "plain.ckpt"):
            assert "error: ckpt_path must " in failing(command, *TABLES, "--ckpt_path", file)
    for file in ("bad.ckpt", "plain.ckpt", "bad.pt"):
        with pytest.raises(InputError, match=r"encoding must (be a checkpoint of this program|hold tensors and plain)"):
            ClientTables("s.csv", "e.csv", encoding=file)
        with pytest.raises(InputError, match="path must be a PyG Data of tensors"):
            _ = ClientGraphFile(file).graph
    trainer = FederatedTrainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    data = ClientTables("s.csv", "e.csv", encoding=best)
    with pytest.raises(InputError, match="ckpt_path must hold tensors and plain data alone"):
        trainer.predict(GFL.load_from_checkpoint(best), datamodule=data, ckpt_path="bad.ckpt")
    assert not Path("owned").exists()
    torch.load("bad.pt", weights_only=False)
    assert Path("owned").exists()  # so the files would do harm


def test_a_saved_graph_is_read_as_it_was(tmp_path: Path) -> None:
    graph = random_clients("sc", dtype=torch.float32)
    file = str(tmp_path / "graph.pt")
    torch.save(graph.to_data(), file)
    assert_same_bits(ClientGraphFile(file).graph, graph)
    weighed = ClientGraphFile(file, class_weights={"0": 1.0, "1": 2.0, "2": 3.0}).graph
    assert weighed.weight is not None
    assert torch.equal(weighed.weight, (graph.y + 1).float())
    torch.save({"x": graph.x}, file)
    with pytest.raises(InputError, match=r"path must be a PyG Data of tensors, got .* with dict"):
        _ = ClientGraphFile(file).graph
    data = graph.to_data()
    del data.train_mask, data.val_mask, data.test_mask
    torch.save(data, file)
    with pytest.raises(InputError, match="data must have a train_mask, val_mask or test_mask"):
        _ = ClientGraphFile(file).graph


@pytest.mark.parametrize("task", ["dnc", "snc"])
def test_clients_with_one_label(run: Run, task: str) -> None:
    for table, file in zip(clinics(30, 3, task), ("s.csv", "e.csv"), strict=True):
        table.to_csv(file, index=False)
    run("fit", "--model=GFL", *TABLES, f"--data.task={task}", "--trainer.max_steps=30", QUIET)
    assert json.loads((newest() / "summary.json").read_text())["val_loss"] < 0.7
    run("test", *TABLES, "--ckpt_path", str(newest() / "best.ckpt"), QUIET)
    report = pd.read_csv(newest() / "clients.csv")
    assert report["auroc"].isna().all()


def test_weights_of_classes_lift_the_rare_one(run: Run) -> None:
    data = {name: ClientTables("s.csv", "e.csv", task="sc", class_weights=weights) for name, weights in
            (("plain", None), ("rare", {"ill": 6.0, "well": 1.0}))}  # fmt: skip
    predicted = {}
    for name, own in data.items():
        model = GFL(own.graph.num_features, 2, MLP((8,)), seed=1)
        trainer = FederatedTrainer(max_steps=20, logger=False, enable_checkpointing=False, enable_progress_bar=False)
        trainer.fit(model, datamodule=own)
        test = own.graph.mask(Split.TEST)
        predicted[name] = int((model.predict_logits()[test].argmax(1) == 0).sum())
    assert predicted["rare"] > predicted["plain"]


def test_init_writes_a_starter_that_runs(run: Run, failing: Run) -> None:
    assert "fit --config 'my folder/config.yaml'" in run("init", "my folder")
    assert sorted(path.name for path in Path("my folder").iterdir()) == ["config.yaml", "edges.csv", "samples.csv"]
    before = {path.name: path.read_bytes() for path in Path("my folder").iterdir()}
    run("fit", "--config", "my folder/config.yaml", QUIET)
    assert json.loads((newest() / "summary.json").read_text())["test_accuracy"] > 0.6
    assert "DIR must be a new or empty folder, as nothing is overwritten, got 'my folder'" in failing(
        "init", "my folder"
    )
    assert {path.name: path.read_bytes() for path in Path("my folder").iterdir()} == before
    assert "The following arguments are required: DIR." in failing("init")
    assert "Unrecognized arguments: --force." in failing("init", "here", "--force")
    assert yaml.safe_load(before["config.yaml"])["data"]["init_args"]["samples"] == "my folder/samples.csv"
    assert not [path for path in Path().iterdir() if path.name.startswith("tmp")]
