"""`compare` and `tune` on small tables: what they write, that the graph is found where it is, and what they refuse."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch.nn.functional import one_hot

from gfl_lightning import __main__ as program
from gfl_lightning.baselines.pooled import POOLED
from gfl_lightning.engine.newcomers import Newcomers
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.parts import describe
from gfl_lightning.practice.candidates import candidates
from gfl_lightning.practice.methods import Method, best_rate, methods, shuffled
from gfl_lightning.practice.setting import Setting
from gfl_lightning.practice.trial import size_groups
from gfl_lightning.reports.scores import scores

MODEL: dict[str, Any] = {
    "class_path": "GFL",
    "init_args": {
        "encoder": {"class_path": "MLP", "init_args": {"hidden": [4]}},
        "aggregator": {"class_path": "APPNP", "init_args": {"alpha": 0.3}},
        "local": {"lr": 0.3, "steps": 2},
    },
}


def config(folder: Path, numbers: bool = False, **model: Any) -> Path:
    """Clinics on a ring, whose patients' risk goes round with it: a client's neighbours know its level."""
    draw = np.random.default_rng(0)
    N, n = 24, 14
    client = np.repeat(np.arange(N), n)
    level = 2.5 * np.cos(2 * np.pi * client / N)
    x = draw.normal(size=(N * n, 2))
    x[:, 1] = level + 2 * draw.normal(size=N * n)
    score = level + x[:, 0] + draw.logistic(size=N * n)
    label = (3 * score + 20).round(2) if numbers else np.where(score > 0, "ill", "well")
    frame = pd.DataFrame({"client": [f"c{k}" for k in client], "a": x[:, 0], "b": x[:, 1], "label": label})
    frame.to_csv(folder / "samples.csv", index=False)
    pairs = [(f"c{k}", f"c{(k + 1) % N}") for k in range(N)]
    pd.DataFrame(pairs, columns=["one", "other"]).to_csv(folder / "edges.csv", index=False)
    tables = {"samples": str(folder / "samples.csv"), "edges": str(folder / "edges.csv"), "task": "sc"}
    tables |= {"loss": "SquaredError"} if numbers else {}
    options = {**MODEL["init_args"], **model}
    content = {
        "trainer": {"max_steps": 25},
        "model": {**MODEL, "init_args": options},
        "data": {"class_path": "ClientTables", "init_args": tables},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", *args])
    program.main()


def test_compare_says_and_writes_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path, personal={"class_path": "OwnLevel"})
    run(monkeypatch, "compare", f"--config={file}", "--splits=2", f"--out={tmp_path / 'out'}")
    said = capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert record["verdict"] in said
    assert record["verdict"] in (tmp_path / "out" / "compare.md").read_text()
    assert (tmp_path / "out" / "compare.png").stat().st_size > 10_000
    by_key = {one["key"]: one for one in record["methods"]}
    ours = ["graph", "shuffled", "fedavg", "graph_shared", "fedavg_shared", "isolated", "mixed"]
    assert list(by_key) == [*ours, *(pooled.key for pooled in POOLED), "baseline"]
    assert [one["needs_data_in_one_place"] for one in record["methods"]] == [False] * 7 + [True] * 3 + [False]
    text = (tmp_path / "out" / "compare.html").read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert record["verdict"] in text
    for title in ("Methods", "Clients that lose by the graph", "Client graph", "Settings"):
        assert f"<h2>{title}</h2>" in text
    known = {key: one["known"]["auroc"]["mean"] for key, one in by_key.items()}
    assert known["baseline"] == pytest.approx(0.5)
    assert known["graph_shared"] > known["fedavg_shared"]
    assert min(known["graph"], known["pooled_linear_clients"]) > known["baseline"] + 0.2
    assert by_key["isolated"]["new"] is None
    assert by_key["mixed"]["new"]["auroc"]["values"] == by_key["graph"]["new"]["auroc"]["values"]
    assert known["mixed"] > known["baseline"] + 0.2
    assert by_key["graph"]["new"]["auroc"]["mean"] > by_key["shuffled"]["new"]["auroc"]["mean"]
    pairs = [
        one
        for one in record["differences"]
        if (one["from"], one["where"], one["metric"]) == ("fedavg", "known", "auroc")
    ]
    values = zip(by_key["graph"]["known"]["auroc"]["values"], by_key["fedavg"]["known"]["auroc"]["values"], strict=True)
    assert pairs[0]["mean"] == pytest.approx(np.mean([a - b for a, b in values]), abs=1e-6)
    assert len(record["clients"]) == 24
    assert record["data"] == {"clients": 24, "rows": 336, "edges": 24, "outputs": 2, "loss": "CrossEntropy"}


def test_a_split_that_is_given_has_intervals_over_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every training then has the same test rows, so that what differs between them says nothing of other rows."""
    file = config(tmp_path)
    content = yaml.safe_load(file.read_text())
    rows = pd.read_csv(tmp_path / "samples.csv")
    rows.assign(year=[2000 + k % 14 for k in range(len(rows))]).to_csv(tmp_path / "samples.csv", index=False)
    content["data"]["init_args"]["split_by"] = "year"
    content["trainer"]["max_steps"] = 10
    file.write_text(yaml.safe_dump(content))
    run(monkeypatch, "compare", f"--config={file}", "--splits=2", f"--out={tmp_path / 'out'}")
    said = capsys.readouterr().out
    assert "Of the split that the data give, trained on 2 times; ± is half of a 95 % interval over clients." in said
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert record["split_is_given"]
    assert "splits do not tell" not in record["verdict"]
    pooled = next(one for one in record["methods"] if one["key"] == "pooled_linear")
    auroc = pooled["known"]["auroc"]
    assert auroc["values"][0] == auroc["values"][1]
    assert auroc["high"] - auroc["low"] > 0.02
    assert pooled["by_size"][0]["auroc"]["low"] is None


@pytest.mark.filterwarnings("default::gfl_lightning.graphs.tables.client_tables.TableWarning")
def test_a_warning_is_one_sentence_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path)
    edges = pd.read_csv(tmp_path / "edges.csv")
    edges.drop(index=[0, 12]).to_csv(tmp_path / "edges.csv", index=False)
    run(monkeypatch, "tune", f"--config={file}", "--splits=3", "--candidates=1", f"--out={tmp_path / 'best.yaml'}")
    said = capsys.readouterr().err
    assert Setting.read(tmp_path / "best.yaml").model == Setting.read(file).model
    assert json.loads((tmp_path / "best.json").read_text())["splits"] == 3
    assert not (tmp_path / "config.tuned.yaml").exists()
    assert said.count("the graph of 24 clients falls into 2 components") == 1
    assert next(line for line in said.splitlines() if "components" in line).startswith("warning: ")


def test_compare_takes_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(tmp_path, numbers=True)
    run(monkeypatch, "compare", f"--config={file}", "--splits=1", f"--out={tmp_path / 'out'}")
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (record["metric"], record["higher_is_better"]) == ("rmse", False)
    reached = {one["key"]: one["known"]["rmse"]["mean"] for one in record["methods"]}
    assert reached["graph"] < 0.8 * reached["baseline"]
    assert reached["pooled_linear_clients"] < reached["pooled_linear"]
    for name in ("compare.md", "compare.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "Of one split, which has no intervals." in text
        assert "± nan" not in text


def test_tune_writes_a_configuration_that_is_at_least_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config(tmp_path)
    run(monkeypatch, "tune", f"--config={file}", "--splits=1", "--candidates=8")
    said = capsys.readouterr().out
    tuned, record = tmp_path / "config.tuned.yaml", json.loads((tmp_path / "config.tuned.json").read_text())
    assert str(tuned) in said
    assert len(record["tried"]) == 8
    assert record["tried"][0]["options"] == {}
    assert record["best"]["val_loss"] <= record["as_configured"]["val_loss"]
    assert record["isolated"] > 0
    found = Setting.read(tuned)
    assert found.model == Setting.read(file).with_options(record["best"]["options"]).model
    assert found.rounds == record["best"]["max_steps"]
    assert tuned.read_text().startswith("# Written by: python -m gfl_lightning tune")


def test_tune_never_sees_test_labels(tmp_path: Path) -> None:
    graph = Setting.read(config(tmp_path)).data_set().graph
    hidden = graph.without_test()
    assert not bool(hidden.mask(Split.TEST).any())
    assert hidden.num_clients == graph.num_clients


def test_candidates_fit_together_and_come_the_same_way() -> None:
    graph = SC(num_clients=20, num_features=5).graph
    drawn = candidates(graph, 60)
    assert drawn == candidates(graph, 60)
    assert len({json.dumps(one, sort_keys=True) for one in drawn}) == 60
    setting = Setting({"class_path": "SC"}, MODEL)
    for options in drawn:
        setting.with_options(options).gfl(graph, 0).engine_on(graph, 3)
    kinds = {one["personal"]["class_path"] for one in drawn[2:]}
    assert kinds == {"Shared", "OwnLevel", "OwnSlopes", "Gate"}
    assert {one["local.weight_decay"] for one in drawn[2:]} == {0.0, 1e-3, 1e-2}


def test_shuffling_moves_clients_and_keeps_the_shape() -> None:
    graph = SC(num_clients=20, num_features=5).graph
    other = shuffled(graph, 1)
    assert not torch.equal(other.edge_index, graph.edge_index)
    degrees = [torch.bincount(one.edge_index[0], minlength=20).sort().values for one in (graph, other)]
    assert torch.equal(*degrees)
    assert torch.equal(other.x, graph.x)


def test_newcomers_have_no_part_in_training() -> None:
    graph = SC(num_clients=30, num_features=5).graph
    found = Newcomers.of(graph, 0)
    assert found is not None
    assert found.without.num_clients == 24
    joined = graph.client[found.rows].unique()
    assert len(joined) == 6
    assert bool((~found.stay[joined]).all())
    assert found.without.num_samples == int(found.stay[graph.client].sum())
    assert torch.equal(found.without.x, graph.x[found.stay[graph.client]])
    kept = found.stay[graph.edge_index].all(0)
    assert found.without.num_edges == int(kept.sum()) // 2
    assert not bool(found.whole.mask(Split.TRAIN).any())
    assert Newcomers.of(SC(num_clients=20, num_features=5).graph, 0) is not None


def test_pooled_models_see_training_rows_alone_and_dummies_know_their_clients() -> None:
    graph = SC(num_clients=30, num_features=5).graph
    tested = graph.mask(Split.TEST)
    for method in POOLED:
        found = method.prediction(graph)
        assert found.shape == (graph.num_samples, 2)
        torch.testing.assert_close(found.sum(1), torch.ones(graph.num_samples, dtype=torch.float64))
    plain, dummies = (scores(graph, method.prediction(graph), tested)["auroc"] for method in POOLED[:2])
    assert dummies > plain


@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(), Poisson()])
def test_dummies_are_a_column_for_each_client_that_trains(loss: Loss) -> None:
    graph = SC(num_clients=30, num_features=5).graph
    draw = torch.Generator().manual_seed(0)
    numbers = torch.poisson(3 + graph.client.double() / 10, generator=draw)
    split = torch.where(graph.client == 7, int(Split.NONE), graph.split)
    y = numbers if loss.of_numbers else graph.y
    graph = replace(graph, y=y, split=split, loss=loss.fitted(y), num_classes=1 if loss.of_numbers else 2)
    dummies = one_hot(graph.client, 30).double()
    dummies[:, 7] = 0
    spread = replace(graph, x=torch.cat([graph.x.double(), dummies], 1))
    torch.testing.assert_close(POOLED[1].prediction(graph), POOLED[0].prediction(spread), rtol=2e-3, atol=2e-3)


def test_sizes_are_groups_of_all_clients(tmp_path: Path) -> None:
    graph = Setting.read(config(tmp_path)).data_set().graph
    names, groups = size_groups(graph)
    assert len(names) == len(groups)
    assert torch.stack(groups).sum(0).tolist() == [1] * graph.num_clients


def test_a_gate_without_neighbours_is_its_level(tmp_path: Path) -> None:
    gate = {"class_path": "Gate", "init_args": {"level": 2.0}}
    setting = Setting.read(config(tmp_path, personal=gate))
    by_key = {method.key: method for method in methods(setting, setting.data_set().graph)}
    assert by_key["fedavg"].options["personal"] == describe(OwnLevel(2.0))


@dataclass(frozen=True)
class Parabola(Method):
    """A method that is best at some factor of the rate."""

    best: float = 1.0

    def graph(self, graph: Any, seed: int) -> Any:
        return graph

    def run(self, setting: Any, graph: Any, seed: int, rate: float) -> Any:
        return SimpleNamespace(val_loss=abs(math.log(rate / self.best)))


@pytest.mark.parametrize(
    ("best", "found"), [(1.0, 1.0), (0.3, 1 / 3), (0.1, 1 / 9), (5.0, 3.0), (8.0, 9.0), (1e4, 9.0)]
)
def test_rates_are_tried_further_where_the_best_is_at_an_end(best: float, found: float) -> None:
    nothing: Any = None
    assert best_rate(Parabola("p", "p", {}, best=best), nothing, nothing) == pytest.approx(found)


NOISY = {"class_path": "Gaussian", "init_args": {"std": 1.0, "clip": 1.0}}


@pytest.mark.parametrize(
    ("command", "change", "sentence"),
    [
        (["compare"], None, "The following arguments are required: --config."),
        (["compare", "--config=nowhere.yaml"], None, "--config must name a file, got 'nowhere.yaml'"),
        (["compare", "--config=c.yaml", "--splits=0"], {}, "--splits must be at least 1, got 0"),
        (["compare", "--config=c.yaml", "--out=c.yaml"], {}, "--out must be a folder, got 'c.yaml'"),
        (["compare", "--config=c.yaml", "--seeds=3"], {}, "Unrecognized arguments: --seeds=3."),
        (["tune", "--config="], {}, "--config must be a file, got '.'"),
        (["tune", "--config=c.yaml", "--candidates=0"], {}, "--candidates must be at least 1, got 0"),
        (["tune", "--config=c.yaml", "--out=c.txt"], {}, "--out must end in .yaml, got 'c.txt'"),
        (["tune", "--config=c.yaml", "--out=c.yaml"], {}, "--out must be another file than the configuration"),
        (
            ["compare", "--config=c.yaml"],
            {"model": "Central"},
            "model must be GFL, which others are compared with",
        ),
        (["compare", "--config=c.yaml"], {"data": None}, r"data must name a class \(class_path\) in the configuration"),
        (
            ["tune", "--config=c.yaml"],
            {"trainer": {"callbacks": [{"class_path": "callbacks.DPSGD"}]}},
            "trainer.callbacks must protect nothing here, as every run would spend of it, got 'callbacks.DPSGD'",
        ),
        (
            ["compare", "--config=c.yaml"],
            {"trainer": {"callbacks": [{"class_path": "callbacks.RandomiseOnce"}]}},
            "trainer.callbacks must protect nothing here, as every run would spend of it, got 'callbacks.Random",
        ),
        (
            ["compare", "--config=c.yaml"],
            {"model": {"class_path": "GFL", "init_args": {"records": {"class_path": "RandomisedOnce"}}}},
            "model.records must protect nothing here, as every run would spend of it, got 'RandomisedOnce'",
        ),
        (
            ["compare", "--config=c.yaml"],
            {"model": {"class_path": "GFL", "init_args": {"protection": {"hidden": NOISY}}}},
            "model.protection must protect nothing here, as every run would spend of it, got Protection",
        ),
        (
            ["tune", "--config=c.yaml"],
            {"trainer": {"max_steps": -1}},
            "trainer.max_steps must be a number of rounds, got -1",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    command: list[str],
    change: dict[str, Any] | None,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if change is not None:
        content = {"model": MODEL, "data": {"class_path": "SC"}} | change
        Path("c.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(SystemExit) as stop:
        run(monkeypatch, *command)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert re.search(sentence, said), said
    assert list(tmp_path.iterdir()) == ([tmp_path / "c.yaml"] if change is not None else [])


def test_help_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; sys.argv = ['gfl_lightning', 'compare', '--help']\n"
    script += "from gfl_lightning.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "whether the graph helps" in " ".join(done.stdout.split())
