"""Intervals, verdicts, corrections and rungs against what they are by definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import t

from gfl_lightning.practice.halving import Candidate, halved, rungs
from gfl_lightning.practice.intervals import Interval, interval, interval_over_clients
from gfl_lightning.practice.rounds import corrected_loss
from gfl_lightning.practice.verdict import amount, verdict


def test_an_interval_allows_for_rows_that_splits_share() -> None:
    values = [1.0, 2.0, 4.0, 5.0]
    found = interval(values, tested_per_trained=0.25)
    reach = t.ppf(0.975, 3) * np.std(values, ddof=1) * math.sqrt(1 / 4 + 0.25)
    assert (found.mean, found.half_width) == (3.0, pytest.approx(reach))
    assert (found.low, found.high) == (pytest.approx(3 - reach), pytest.approx(3 + reach))
    alone = interval([2.0, math.nan], 0.25)
    assert alone.mean == 2
    assert math.isnan(alone.low)
    assert alone.sign == 0
    assert interval([], 0.25).record() == {"mean": None, "low": None, "high": None}


def test_a_verdict_says_what_the_intervals_say() -> None:
    up, down, none = Interval(0.011, 0.008, 0.014), Interval(-0.02, -0.03, -0.01), Interval(0.001, -0.01, 0.012)
    said = verdict("auroc", {"fedavg": up, "shuffled": up, "isolated": up}, up, 5)
    assert said == "The graph adds 1.10 ± 0.30 AUROC over FedAvg; shuffled edges lose it."
    said = verdict("auroc", {"fedavg": up, "shuffled": none, "isolated": down}, up, 5)
    assert "shuffled edges do so too, so that it need not be these edges that help" in said
    assert said.endswith("; isolated models are better by 2.00 ± 1.00.")
    said = verdict("auroc", {"fedavg": up, "shuffled": none}, none, 5)
    assert said.endswith("; 5 splits do not tell whether shuffled edges lose it.")
    pooled = {"pooled_linear": up, "pooled_linear_clients": Interval(-0.01, -0.015, -0.005), "pooled_trees": down}
    said = verdict("auroc", {"fedavg": down, "shuffled": up, **pooled}, up, 5)
    assert said.startswith("The graph loses to FedAvg by 2.00 ± 1.00 AUROC: use FedAvg (model.aggregator: Identity); ")
    assert said.endswith("; better by 2.00 ± 1.00, with all rows in one place: pooled boosted trees.")
    said = verdict("rmse", {"fedavg": none, "shuffled": none}, none, 5)
    assert said == "5 splits do not tell the graph from FedAvg (it gains 0.0010 ± 0.0110 RMSE)."
    assert verdict("rmse", {"fedavg": up, "shuffled": up}, up, 5).startswith("The graph takes off 0.0110 ± 0.0030 RMSE")
    assert amount("auroc", none) == "0.10 ± 1.10"
    once = interval([0.012], 0.3)
    said = verdict("auroc", {"fedavg": once, "shuffled": once, "isolated": once}, once, 1)
    assert said == "The graph gains 1.20 AUROC over FedAvg on one split, which has no interval: this may be chance."


def test_the_loss_of_isolated_models_is_not_that_of_the_rounds_they_picked() -> None:
    """Where rounds differ by chance alone, the corrected loss is right in the mean and the picked one is too low."""
    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(50, 3000, generator=draw)
    client = torch.arange(3000) % 1000
    by_client = torch.stack([losses[:, client == k].mean(1) for k in range(1000)])
    picked = float(by_client.min(1).values.mean())
    assert picked < 0.25
    assert corrected_loss(losses, client) == pytest.approx(0.5, abs=0.02)
    alone = corrected_loss(losses[:, :1000], torch.arange(1000))
    best = losses[:, :1000].mean(1).argmin()
    assert alone == pytest.approx(float(losses[best, :1000].mean()))


def test_where_one_round_is_best_for_all_nothing_is_corrected() -> None:
    losses = torch.stack([torch.full((6,), 0.9), torch.full((6,), 0.2), torch.full((6,), 0.5)])
    assert corrected_loss(losses, torch.tensor([0, 0, 1, 1, 1, 2])) == pytest.approx(0.2)


class Falling:
    """A run whose loss falls to a floor that its options name."""

    def __init__(self, floor: float) -> None:
        self.floor, self.made = floor, 0
        self.best = type("Best", (), {"round": 0})()
        self.state = type("State", (), {"round": 0})()

    def advance(self, rounds: int) -> None:
        self.made = rounds

    @property
    def val_loss(self) -> float:
        return self.floor + 1 / max(self.made, 1)


def test_halving_leaves_the_worse_behind_and_finds_the_best() -> None:
    assert rungs(270, 32) == [10, 30, 90, 270]
    assert rungs(5, 1) == [5]
    heard: list[tuple[int, int]] = []
    tried = [Candidate({"floor": 0.1 * i}) for i in (5, 3, 8, 1, 7, 2, 9, 6, 4)]
    best = halved(
        tried,
        lambda options: [Falling(options["floor"])],  # type: ignore[list-item]
        90,
        lambda number, rounds: heard.append((number, rounds)),
    )
    assert best.options == {"floor": 0.1}
    assert heard == [(9, 30), (3, 90)]
    assert sorted(one.rung for one in tried) == [0] * 6 + [1] * 3
    refused = Candidate({"floor": -1.0})
    found = halved(
        [refused, *tried], lambda options: [] if options["floor"] < 0 else [Falling(0.5)], 90, lambda *_: None
    )  # type: ignore[list-item]
    assert found is not refused
    assert refused.record()["val_loss"] is None


def test_an_interval_over_clients_is_that_of_independent_clients() -> None:
    """For a mean over clients the jackknife is the usual standard error; trainings that differ widen it."""
    values = np.random.default_rng(0).normal(size=20)
    without = [float(np.delete(values, k).mean()) for k in range(20)]
    found = interval_over_clients([float(values.mean())], [without])
    reach = t.ppf(0.975, 19) * values.std(ddof=1) / math.sqrt(20)
    assert (found.mean, found.half_width) == (pytest.approx(values.mean()), pytest.approx(reach))
    twice = interval_over_clients([1.0, 3.0], [without, without])
    assert twice.half_width == pytest.approx(math.hypot(reach, t.ppf(0.975, 19)))
    assert math.isnan(interval_over_clients([1.0], [[1.0]]).low)
    assert math.isnan(interval_over_clients([1.0, 2.0], []).low)
