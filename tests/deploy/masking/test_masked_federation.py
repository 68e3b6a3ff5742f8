"""A whole federation over masked sums takes the plain trajectory to the error of fixed point, whoever is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import deploy_builders
import numpy as np
import pandas as pd
import pytest
import torch
from deploy_builders import driver, make_tables, plan
from flaky import Flaky, How, flaky_driver, tensors
from scipy.stats import chisquare

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.aggregation import NotOpenedError
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP

SMALL = MLP((6,))
ON = Masking(on=True)


CASES: dict[str, dict[str, Any]] = {
    "jacobian": {},
    "v1": {"estimator": "v1"},
    "batches": {"local": LocalTraining(0.1, 3, 3)},
    "gram": {"protocol": "gram"},
    "linear": {"encoder": Linear()},
    "linear, learnable": {"encoder": Linear(), "aggregator": LearnablePolynomial(M=3)},
    "linear, gram": {"encoder": Linear(), "protocol": "gram"},
    "learnable": {"aggregator": LearnablePolynomial(M=3)},
    "fedavg": {"aggregator": Identity()},
    "adaptive": {"server": FedAdam(0.05), "weighting": "samples"},
}


@pytest.mark.parametrize("task", ["sc", "dnc"])
@pytest.mark.parametrize("case", CASES)
def test_masked_sums_take_the_plain_trajectory(tmp_path: Path, case: str, task: str) -> None:
    make_tables(tmp_path, task)
    chosen = plan(task, 5, seed=3, **{"encoder": SMALL, "local": LocalTraining(0.1, 3)} | CASES[case])
    plain, masked = driver(tmp_path, chosen), driver(tmp_path, replace(chosen, masking=replace(ON, rounds_ahead=3)))
    outcomes = []
    for made in (plain, masked):
        made.store.file.unlink(missing_ok=True)
        outcomes.append(made.run())
    expected, found = outcomes
    torch.testing.assert_close(masked.weights, plain.weights, rtol=1e-5, atol=1e-6)
    assert found.best.round == expected.best.round
    for split in ("train", "val", "test"):
        assert vars(found.test[split]) == pytest.approx(vars(expected.test[split]), rel=1e-4)


def test_words_of_32_bits_hold_the_sums_of_many_rows(tmp_path: Path) -> None:
    """Counts beyond what one such word holds: 682 for three sites."""
    make_tables(tmp_path, rows=900)
    chosen = plan("sc", 2, encoder=SMALL, local=LocalTraining(0.1, 3))
    narrow = replace(chosen, masking=Masking(on=True, bits=32, fraction=20))
    outcomes = []
    for made in (driver(tmp_path, chosen), driver(tmp_path, narrow)):
        made.store.file.unlink(missing_ok=True)
        outcomes.append(made.run())
    expected, found = outcomes
    assert narrow.masking.code.limit(3) < 900
    for split in ("train", "val", "test"):
        assert vars(found.test[split]) == pytest.approx(vars(expected.test[split]), rel=1e-4)


SIX = {f"s{i}": (name,) for i, name in enumerate("abcdef")}


def in_six_sites(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same six clients, each at a site of its own."""
    monkeypatch.setattr(deploy_builders, "SITES", SIX)
    make_tables(folder)


@pytest.mark.parametrize("protocol", ["jacobian", "gram"])
@pytest.mark.parametrize("how", ["asked", "answered"])
@pytest.mark.parametrize("phase", ["share", "train", "mask_open"])
def test_a_site_that_drops_out_contributes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, how: How, protocol: ProtocolName
) -> None:
    """In every phase, before or after it has answered: the run of the forgetting server that misses the same upload."""
    in_six_sites(tmp_path, monkeypatch)

    def lost(seen: str, t: int, site: str) -> How:
        return how if seen == phase and site == "s2" and t == 1 else ""

    chosen = plan("sc", 3, encoder=SMALL, seed=3, local=LocalTraining(0.3, 3), protocol=protocol, metrics=False)
    masked = flaky_driver(driver(tmp_path, replace(chosen, masking=ON)), lost)
    masked.run()
    masked.store.file.unlink()
    plain = flaky_driver(driver(tmp_path, replace(chosen, protocol="jacobian", release=True)), lost)
    if phase == "share":  # having put on no pad it cannot read its sums, and sits the round out
        plain = flaky_driver(
            driver(tmp_path, replace(chosen, protocol="jacobian", release=True)),
            lambda seen, t, site: how if seen in ("share", "train") and site == "s2" and t == 1 else "",
        )
    plain.run()
    torch.testing.assert_close(masked.weights, plain.weights, rtol=1e-5, atol=1e-6)


def test_too_many_drop_outs_stop_the_run_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_six_sites(tmp_path, monkeypatch)
    chosen = plan("sc", 3, encoder=SMALL, masking=ON)
    made = flaky_driver(
        driver(tmp_path, chosen), lambda phase, t, site: "asked" if phase == "train" and site < "s3" else ""
    )
    with pytest.raises(NotOpenedError, match="train of round 0 must have the uploads of at least 4 of 6 sites"):
        made.run()


def test_a_site_that_was_away_is_back_with_the_next_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_six_sites(tmp_path, monkeypatch)
    chosen = plan("sc", 6, encoder=SMALL, masking=replace(ON, rounds_ahead=3))
    away = ("mask_keys", 0, "s4")
    made = flaky_driver(driver(tmp_path, chosen), lambda *which: "asked" if which == away else "")
    ages: list[list[int]] = []
    made.watch = lambda news: ages.append(made.ask.sums.ages(news.round))  # type: ignore[union-attr]
    made.run()
    assert ages[0][4] == -1
    assert ages[-1][4] == 0


def test_what_the_server_receives_tells_nothing_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number in every masked upload looks random, and what goes back to receivers too."""
    in_six_sites(tmp_path, monkeypatch)
    chosen = plan("sc", 4, encoder=MLP((64,)), masking=ON, metrics=False)
    made = flaky_driver(driver(tmp_path, chosen), lambda *_: "")
    made.run()
    assert isinstance(made.transport, Flaky)
    sent = [blob for phase, _, _, blob in made.transport.seen if phase in ("share", "train")]
    words = [tensors(blob)["0.words"].numpy() for blob in sent]
    values = [chisquare(np.bincount(one.view(np.uint8).ravel(), minlength=256)).pvalue for one in words]
    assert len(values) == 6 * 10
    assert min(values) > 1e-4 / len(values)


def test_a_receiver_that_hears_of_one_site_is_refused_by_name(tmp_path: Path) -> None:
    make_tables(tmp_path)
    pairs = pd.DataFrame([("a", "b"), ("c", "e"), ("d", "f")], columns=["one", "other"])
    pairs.to_csv(tmp_path / "edges.csv", index=False)
    chosen = plan("sc", 2, encoder=SMALL, masking=ON)
    said = "got: a of north hears of south alone; b of south hears of north alone"
    with pytest.raises(InputError, match=said):
        driver(tmp_path, chosen).run()
    with pytest.warns(UserWarning, match=said):
        driver(tmp_path, replace(chosen, masking=replace(ON, single_neighbour="warn"))).run()


def test_a_resumed_run_goes_on_with_new_keys(tmp_path: Path) -> None:
    make_tables(tmp_path)
    chosen = plan("sc", 4, encoder=SMALL, seed=3, masking=ON)
    whole = driver(tmp_path, chosen)
    whole.run()
    whole.store.file.unlink()
    stopped = driver(tmp_path, chosen)
    stopped.watch = lambda news: _stop_after(news.round, 2)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    resumed = driver(tmp_path, chosen)
    resumed.run()
    torch.testing.assert_close(resumed.weights, whole.weights, rtol=1e-5, atol=1e-6)


def _stop_after(made: int, rounds: int) -> None:
    if made > rounds:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("phase", "t"), [("share", 2), ("mask_open", 2), ("finish", 4)])
def test_a_run_that_stopped_after_a_sum_was_opened_goes_on_without_a_site_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, t: int
) -> None:
    """The sites open no second sum of that round, over others; the server has kept the first."""
    in_six_sites(tmp_path, monkeypatch)
    chosen = plan("sc", 3, encoder=SMALL, seed=3, local=LocalTraining(0.3, 3), masking=ON)

    def stops(seen: str, now: int, site: str) -> How:
        if (seen, now) == (phase, t):
            raise KeyboardInterrupt
        return ""

    def gone(seen: str, now: int, site: str) -> How:
        return "asked" if site == "s2" else ""

    with pytest.raises(KeyboardInterrupt):
        flaky_driver(driver(tmp_path, chosen), stops).run()
    resumed = flaky_driver(driver(tmp_path, chosen), gone)
    outcome = resumed.run()
    assert set(outcome.missing) == {"s2"}
    resumed.store.file.unlink()
    plain = flaky_driver(
        driver(tmp_path, replace(chosen, masking=Masking(), release=True)),
        lambda seen, now, site: gone(seen, now, site) if seen in ("share", "train") and now >= t else "",
    )
    expected = plain.run()
    torch.testing.assert_close(resumed.weights, plain.weights, rtol=1e-5, atol=1e-6)
    assert outcome.best.val_loss == pytest.approx(expected.best.val_loss, rel=1e-4)
