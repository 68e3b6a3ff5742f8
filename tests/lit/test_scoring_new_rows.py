"""`predict` on a table with only the new rows: by what the checkpoint keeps, whoever else is in the table."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from table_builders import clinics

from gfl_lightning.__main__ import main
from gfl_lightning.checks import InputError
from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.graphs.tables.client_tables import ClientTables, TableWarning
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.gate import Gate
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.once import RandomisedOnce

QUIET: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
QUIET |= {"enable_model_summary": False, "accelerator": "cpu"}
Fitted = Callable[..., GFL]


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fitted:
    """Fit on s.csv, e.csv and c.csv, which are written into a new current folder, and save m.ckpt."""
    monkeypatch.chdir(tmp_path)
    samples, edges = clinics()
    samples.to_csv("s.csv", index=False)
    edges.to_csv("e.csv", index=False)
    places = np.random.default_rng(0).normal(size=(12, 2))
    clients = pd.DataFrame(places, columns=["north", "east"]).assign(client=[f"clinic {k}" for k in range(12)])
    clients.to_csv("c.csv", index=False)

    def fit(options: dict[str, Any] | None = None, **model: Any) -> GFL:
        data = ClientTables(samples="s.csv", task="sc", **{"edges": "e.csv"} | (options or {}))
        module = GFL(data.graph.num_features, 2, MLP((8,)), seed=1, **model)
        trainer = FederatedTrainer(max_steps=6, **QUIET)
        trainer.fit(module, data)
        trainer.save_checkpoint("m.ckpt")
        return module

    return fit


def predicted(data: ClientTables, kind: type[Any] = GFL) -> pd.DataFrame:
    """Probabilities by client and sample."""
    (p,) = FederatedTrainer(**QUIET).predict(kind.load_from_checkpoint("m.ckpt"), data, ckpt_path="m.ckpt")
    owner = [data.names.clients[k] for k in data.graph.client]
    return pd.DataFrame(p.numpy(), index=pd.MultiIndex.from_arrays([owner, list(data.names.samples)]))


def table(rows: pd.DataFrame, **options: Any) -> ClientTables:
    rows.to_csv("new.csv", index=False)
    return ClientTables("new.csv", encoding="m.ckpt", **options)


@pytest.mark.parametrize("scaling", ["shared", "per_client"])
def test_predictions_do_not_depend_on_which_other_rows_are_in_the_table(fitted: Fitted, scaling: str) -> None:
    module = fitted({"scaling": scaling})
    samples = pd.read_csv("s.csv").drop(columns="label")
    whole = predicted(table(samples))
    logits = module.predict_logits()
    np.testing.assert_allclose(whole, torch.softmax(logits, -1), atol=1e-5)
    few = samples.iloc[[140, 3, 77]]
    found = predicted(table(few))
    np.testing.assert_allclose(found, whole.loc[found.index], atol=1e-6)
    one = predicted(table(samples.iloc[[77]]))
    np.testing.assert_allclose(one, whole.loc[one.index], atol=1e-6)


@pytest.mark.parametrize("personal", [OwnLevel(strength=1.0), Gate(strength=1.0)], ids=str)
def test_what_a_client_has_for_itself_is_kept_for_it(fitted: Fitted, personal: Any) -> None:
    module = fitted(personal=personal)
    samples = pd.read_csv("s.csv").drop(columns="label")
    whole = predicted(table(samples))
    np.testing.assert_allclose(whole, torch.softmax(module.predict_logits(), -1), atol=1e-5)
    new = pd.concat([samples.iloc[[40]], samples.iloc[[3]].assign(client="new")])
    pd.DataFrame([("new", "clinic 3")], columns=["a", "b"]).to_csv("ne.csv", index=False)
    found = predicted(table(new, edges="ne.csv"))
    np.testing.assert_allclose(found.iloc[[0]], whole.loc[found.index[:1]], atol=1e-6)
    terms = module.terms()
    assert not torch.equal(terms.gate, torch.ones(12)) or bool(terms.B.any())


def test_rows_that_are_a_network_of_their_own_may_be_connected_by_other_columns(fitted: Fitted) -> None:
    """The model was trained on given edges; the profile that makes those of the new network is read from its table."""
    fitted()
    samples = pd.read_csv("s.csv").drop(columns="label")
    data = table(samples, representations="rows", clients="c.csv", neighbours=2)
    same = ClientTables("s.csv", task="sc", clients="c.csv", neighbours=2, client_features=[]).graph.edge_index
    assert torch.equal(data.graph.edge_index, same)
    assert torch.isfinite(torch.tensor(predicted(data).to_numpy())).all()


def test_new_clients_come_with_their_edges_and_disturb_nobody(fitted: Fitted) -> None:
    fitted()
    samples = pd.read_csv("s.csv").drop(columns="label")
    whole = predicted(table(samples))
    new = samples.iloc[:4].assign(client="new")
    pd.DataFrame([("new", "clinic 3"), ("clinic 4", "new"), ("new", "other")], columns=["a", "b"]).to_csv("ne.csv")
    both = pd.concat([samples.iloc[[50]], new, samples.iloc[[60]].assign(client="other")])
    edges = {"edges": "ne.csv", "source": "a", "target": "b"}
    with pytest.warns(TableWarning, match="1 edges between two new clients are left out, as neither has shared"):
        found = predicted(table(both, **edges))
    np.testing.assert_allclose(found.loc[[("clinic 4", "p50")]], whole.loc[[("clinic 4", "p50")]], atol=1e-6)
    pd.DataFrame([("new", "clinic 3"), ("clinic 4", "new")], columns=["a", "b"]).to_csv("ne.csv")
    alone = predicted(table(new.iloc[[2]], **edges))
    np.testing.assert_allclose(alone, found.loc[alone.index], atol=1e-6)
    pd.DataFrame([("new", "clinic 9")], columns=["a", "b"]).to_csv("ne.csv")
    elsewhere = predicted(table(new.iloc[[2]], **edges))
    assert not np.allclose(alone, elsewhere, atol=1e-3)


def test_new_clients_are_placed_by_their_profile(fitted: Fitted) -> None:
    options = {"edges": None, "clients": "c.csv", "neighbours": 4, "distance": "plane", "client_features": []}
    fitted(options)
    rows = pd.read_csv("s.csv").drop(columns="label").iloc[:2].assign(client="new")
    clients = pd.read_csv("c.csv").set_index("client")
    place = clients.loc["clinic 7"]
    pd.DataFrame([("new", place["north"], place["east"])], columns=["client", "north", "east"]).to_csv(
        "nc.csv", index=False
    )
    found = predicted(table(rows, clients="nc.csv"))
    distance = np.linalg.norm(clients.to_numpy() - place.to_numpy(), axis=1)
    near = clients.index[distance.argsort()[:4]]
    pd.DataFrame([("new", name) for name in near], columns=["a", "b"]).to_csv("ne.csv", index=False)
    np.testing.assert_allclose(found, predicted(table(rows, edges="ne.csv")), atol=1e-6)
    with pytest.raises(InputError, match="clients must name a table with north, east, by which new clients are placed"):
        _ = table(rows).graph


@pytest.mark.parametrize("declared", [{}, {"numeric": ["north"]}], ids=str)
def test_features_of_clients_are_asked_for_again(fitted: Fitted, declared: dict[str, Any]) -> None:
    fitted({"clients": "c.csv", **declared})
    rows = pd.read_csv("s.csv").drop(columns="label")
    whole, few = predicted(table(rows, clients="c.csv")), predicted(table(rows.iloc[[9]], clients="c.csv"))
    np.testing.assert_allclose(few, whole.loc[few.index], atol=1e-6)
    with pytest.raises(InputError, match="clients must name a table with north, east, as the model was trained, got N"):
        _ = table(rows).graph


def test_the_kept_representations_are_the_protected_ones(fitted: Fitted) -> None:
    noisy = Protection(hidden=Gaussian(std=0.3, clip=0.5))
    module = fitted(protection=noisy, estimator="v1")
    kept = torch.load("m.ckpt", weights_only=True)["shared"]
    federation, state = module.federation, module.state
    guarded = exchange(federation.prediction.guard, state.round, state.weights).uploaded_h
    assert torch.equal(kept, guarded)
    assert not torch.allclose(kept, federation.prediction.shared_at(state.weights), atol=0.05)
    found = predicted(table(pd.read_csv("s.csv").drop(columns="label")))
    np.testing.assert_allclose(found, torch.softmax(module.predict_logits(), -1), atol=1e-5)


def test_statistics_of_tables_are_named_as_unprotected(fitted: Fitted) -> None:
    every = Gaussian(std=9.0, clip=0.5)
    report = fitted(protection=Protection(hidden=every, update=every), estimator="v1").privacy
    assert report is not None
    assert math.isinf(report.epsilon)
    assert report.gaps == ("statistics of the tables (means, deviations, categories, classes)",)
    once = fitted(records=RandomisedOnce(epsilon=4.0)).privacy
    assert once is not None
    assert (once.epsilon, once.gaps) == (math.inf, report.gaps)


def test_the_best_round_keeps_what_stood_at_it(fitted: Fitted) -> None:
    module = fitted()
    best = module.best
    module.use_best()
    assert torch.equal(module.shared(), best.shared)
    expected = exchange(module.federation.prediction.guard, best.round, best.weights).uploaded_h
    torch.testing.assert_close(best.shared, expected)
    module.set_parameters({name: weight / 2 for name, weight in best.weights.items()})
    halved = module.federation.prediction.shared_at(module.current_weights())
    assert torch.equal(module.shared(), halved)


def test_models_of_single_clients_score_their_own_new_rows(fitted: Fitted) -> None:
    fitted()
    data = ClientTables("s.csv", "e.csv", task="sc")
    trainer = FederatedTrainer(max_steps=3, **QUIET)
    module = LocalMLPs(data.graph.num_features, 2, 12)
    trainer.fit(module, data)
    trainer.save_checkpoint("m.ckpt")
    rows = pd.read_csv("s.csv").drop(columns="label")
    whole, few = predicted(table(rows), LocalMLPs), predicted(table(rows.iloc[[100, 7]]), LocalMLPs)
    np.testing.assert_allclose(whole, torch.softmax(module.predict_logits(), -1), atol=1e-6)
    np.testing.assert_allclose(few, whole.loc[few.index], atol=1e-6)


def test_a_network_without_anyone_known_is_one_of_its_own_or_refused(fitted: Fitted) -> None:
    fitted()
    others = pd.read_csv("s.csv").assign(client=lambda one: "other " + one["client"])
    edges = pd.read_csv("e.csv").map(lambda name: f"other {name}")
    edges.to_csv("oe.csv", index=False)
    assert table(others, edges="oe.csv").placement is None
    assert table(others, edges="oe.csv").graph.num_edges == 24
    sentence = "samples must hold clients of the checkpoint's network"
    for options in ({}, {"edges": "oe.csv", "representations": "kept"}):
        with pytest.raises(InputError, match=sentence):
            _ = table(others, **options).graph


def test_the_command_line_needs_the_rows_and_the_checkpoint(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted()
    rows = pd.read_csv("s.csv").drop(columns="label")
    whole = predicted(table(rows))
    rows.iloc[[5, 90]].to_csv("new.csv", index=False)
    for file in ("s.csv", "e.csv", "c.csv"):
        Path(file).unlink()
    options = ("--data=ClientTables", "--data.samples=new.csv", "--ckpt_path=m.ckpt", "--output=p.csv")
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "predict", *options])
    main()
    assert "predictions of 2 samples: p.csv" in capsys.readouterr().out
    found = pd.read_csv("p.csv").set_index(["client", "sample"])
    np.testing.assert_allclose(found[["p_ill", "p_well"]], whole.loc[found.index], atol=1e-5)


def test_labelled_new_rows_are_not_said_to_have_been_trained_on(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.read_csv("s.csv")
    rows.assign(day=rows.groupby("client").cumcount()).to_csv("s.csv", index=False)
    fitted({"split_by": "day"})

    def columns(samples: str) -> pd.DataFrame:
        tables = ("--data=ClientTables", f"--data.samples={samples}", "--data.edges=e.csv")
        options = (*tables, "--data.representations=kept", "--ckpt_path=m.ckpt", "--output=p.csv")
        monkeypatch.setattr(sys, "argv", ["gfl_lightning", "predict", *options])
        main()
        return pd.read_csv("p.csv")

    assert {"true", "split"} <= set(columns("s.csv"))
    pd.read_csv("s.csv").iloc[[0, 30]].to_csv("new.csv", index=False)
    found = columns("new.csv")
    assert list(found["true"]) == list(pd.read_csv("new.csv")["label"])
    assert "split" not in found
