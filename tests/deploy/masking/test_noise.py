"""Noise split over clients: what a sum holds whoever drops out and tells, what is refused, what the account says."""

from __future__ import annotations

import math
from collections.abc import Collection
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deploy_builders import driver, make_tables, plan, settings, sites
from hypothesis import given
from hypothesis import strategies as st
from masked_sums import met, names, opened, prepared
from scipy.special import ndtr
from scipy.stats import chi2
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.aggregation import NotOpenedError
from gfl_lightning.deploy.masking.fixed_point import FixedPoint
from gfl_lightning.deploy.masking.noise import Split, Whole
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.site_account import SiteAccount
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.messages import ModelUpload
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.exact_normal import rounded_normal
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.noise_source import NoiseSource
from gfl_lightning.privacy.protection import Protection

TRAIN = Ticket("run", 0, "train")
PUBLIC = {
    "ranges": {"age": (0.0, 120.0), "lactate": (0.0, 10.0)},
    "categories": {"ward": ("A", "B", "C")},
    "classes": ("ill", "well"),
}
SIGMA, CLIP = 2.0, 0.5


@given(st.data(), st.integers(3, 6))
def test_a_sum_is_opened_only_if_its_noise_suffices_whoever_colludes(data: st.DataObject, count: int) -> None:
    """Against every choice of colluding sites: m shares of σ²/m are left of the others, or some site refuses."""
    shares = {site: data.draw(st.integers(0, 4)) for site in names(count)}
    inside = data.draw(st.lists(st.sampled_from(names(count)), min_size=1, unique=True))
    split = Split(SIGMA, CLIP, data.draw(st.integers(2, 12)), data.draw(st.integers(1, 3)))

    def variance(me: str, colluding: Collection[str]) -> float:
        return sum(shares[site] * SIGMA**2 / split.over for site in inside if site not in colluding)

    for me in inside:
        others = [site for site in inside if site != me]
        worst = min(variance(me, c) for c in combinations(others, min(split.colluding, len(others))))
        if worst >= SIGMA**2 * (1 - 1e-12):
            split.require_enough_for(me, TRAIN, shares, inside)
        else:
            with pytest.raises(InputError, match=rf"must hold {split.over} shares of noise for the clients of {me}"):
                split.require_enough_for(me, TRAIN, shares, inside)


@pytest.mark.parametrize("colluding", [0, 2])
def test_an_opened_sum_carries_the_shares_of_its_sites(colluding: int) -> None:
    """The variance of what is left of the noise when colluding sites have taken theirs out, by moments."""
    server, sites = met(5)
    prepared(server, sites, [TRAIN])
    split, size, shares = Split(3.0, 1.0, 4, 2), 40_000, {site: 1 + place for place, site in enumerate(names(5))}
    gone = names(5)[0]
    noise = {site: split.beside(shares[site], torch.zeros(size + 9), size) for site in sites}
    uploads = {
        site: sites[site].masked(TRAIN, torch.full((size + 9,), 2.0), beside=noise[site])
        for site in sites
        if site != gone
    }
    total = FixedPoint().decode(opened(server, sites, TRAIN, uploads))
    known = names(5)[5 - colluding :]
    left = total - 4 * 2.0 - sum((noise[site][0] for site in known), torch.zeros(size + 9))
    variance = sum(shares[site] for site in uploads if site not in known) * 3.0**2 / 4
    assert float(left[:size].var()) == pytest.approx(variance, rel=5 * math.sqrt(2 / size))
    assert abs(float(left[:size].mean())) < 5 * math.sqrt(variance / size)
    assert float(left[size:].abs().max()) < 1e-8, "counts and scores bear no noise"


def test_noise_is_drawn_anew_for_every_contribution() -> None:
    """The same noise beside others' new one would be averaged out of two sums of one round."""
    split, numbers = Split(1.0, 1.0, 2, 1), torch.ones(50, dtype=torch.float64)
    (first,), (second,) = split.beside(1, numbers, 50), split.beside(1, numbers, 50)
    assert not (first == second).any()
    assert not split.beside(0, numbers, 50)[0].any()
    assert Whole().beside(3, numbers, 50) == []


def test_a_model_asked_for_again_costs_again_where_noise_is_split(tmp_path: Path) -> None:
    make_tables(tmp_path)
    for chosen, times in ((private(), 2), (private(split=None), 1)):
        at = sites(tmp_path, chosen)
        made = driver(tmp_path, chosen, at)
        made.store.file.unlink(missing_ok=True)
        made.run()
        account = at["south"]._account
        assert isinstance(account, SiteAccount)
        model = [ModelUpload(1, {"W": torch.ones(2)})]
        spent = []
        for _ in range(3):
            spent.append(float(account._ledger.server[0]))
            account.charge(model, (), [0])
        assert spent[1] > spent[0]
        assert spent[2] - spent[1] == pytest.approx((times - 1) * (spent[1] - spent[0]))
        (at["south"].folder / "account.gfl").unlink()


def test_models_are_bounded_again_and_votes_are_one() -> None:
    """A server that told a small vote for others would make their noise small against one client's model."""
    split, W = Split(1.0, 0.5, 2, 1), {"a": torch.randn(4), "b": torch.randn(2, 3)}
    assert split.votes({3: 0.01, 5: 0.2}) == {3: 1.0, 5: 1.0}
    moved: dict[str, Tensor] = {name: weight + 10 for name, weight in W.items()}
    (far,) = split.bounded([ModelUpload(0, moved)], W)
    assert isinstance(far, ModelUpload)
    norm = torch.cat([(far.weights[name] - W[name].double()).flatten() for name in W]).norm()
    assert float(norm) == pytest.approx(0.5, abs=10 * split.step)
    (same,) = split.bounded([ModelUpload(0, W)], W)
    assert isinstance(same, ModelUpload)
    exact = {name: weight.double() for name, weight in W.items()}
    torch.testing.assert_close(same.weights, exact, rtol=0, atol=split.step / 2)
    for made in (far, same):
        assert all(
            bool((weight / split.step == (weight / split.step).round()).all()) for weight in made.weights.values()
        )


@given(st.floats(1e-9, 1e9), st.integers(2, 5000), st.integers(1, 5000))
def test_noise_is_made_of_rounded_normal_numbers_that_add_up_to_its_shares(std: float, over: int, shares: int) -> None:
    """Their variances, which are powers of four of steps, are those of the shares or at most a thousandth more."""
    split = Split(std, 1.0, over, 1)
    assert 2**24 <= std / math.sqrt(over) / split.step < 2**25
    together = sum(Fraction(4) ** b for b in split.finenesses(shares)) * Fraction(split.step) ** 2
    wanted = Fraction(std) ** 2 * shares / over
    assert wanted <= together <= wanted * (1 + Fraction(1, 4**5) + Fraction(1, 10**9))
    assert min(split.finenesses(shares)) >= 19
    assert len(split.finenesses(shares)) < 40


def test_sums_are_whole_steps() -> None:
    """What is on the lattice of words below a step would tell of one model alone, as no noise lies there."""
    split, numbers = Split(3.0, 1.0, 5, 1), torch.zeros(500, dtype=torch.float64)
    (noise,) = split.beside(7, numbers, 400)
    steps = noise / split.step
    assert torch.equal(steps, steps.round())
    assert len(steps[:400].remainder(2).unique()) == 2
    words = FixedPoint().encode(noise, 5)
    assert not (words % np.uint64(split.step * 2**32)).any()


def test_a_rounded_normal_number_has_the_probability_of_its_cell() -> None:
    """At another fineness than the usual one, by χ²."""
    drawn, n = rounded_normal((400_000,), NoiseSource(bytes(32)), fineness=2).numpy(), 400_000
    edges = (np.arange(-10, 12) - 0.5) / 4
    expected = n * np.diff(ndtr(np.concatenate([[-np.inf], edges, [np.inf]])))
    found = np.histogram(drawn / 4, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
    assert ((found - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, len(expected) - 1)


def private(rounds: int = 1, std: float = SIGMA, split: int | None = 3, on: bool = True, **options: Any) -> Plan:
    tables = TablePlan(type(settings())(task="sc", missing="fill"), **PUBLIC)  # type: ignore[arg-type]
    masking = Masking(on=on, split=split if on else None)
    given: dict[str, Any] = {"protection": Protection(update=Gaussian(std, CLIP)), "masking": masking} | options
    return plan("sc", rounds, tables=tables, encoder=MLP((500,)), aggregator=Identity(), seed=3, **given)


def test_the_average_bears_the_noise_of_all_shares_and_the_account_is_that_of_whole_noise(tmp_path: Path) -> None:
    """K = 6 clients with shares of σ²/3: √(6/3) σ on the sum, a sixth of that on W̄; with ε of σ for each client."""
    make_tables(tmp_path)
    outcomes, weights = {}, {}
    chosen = {"split": private(), "whole": private(split=None), "none": private(std=0.0, on=False)}
    for name, one in chosen.items():
        made = driver(tmp_path, one)
        made.store.file.unlink(missing_ok=True)
        for file in tmp_path.glob("*/account.gfl"):
            file.unlink()
        outcomes[name] = made.run()
        weights[name] = torch.cat([part.flatten() for part in made.weights.values()])
    for name, expected in (("split", SIGMA * math.sqrt(6 / 3) / 6), ("whole", SIGMA * math.sqrt(6) / 6)):
        noise = weights[name] - weights["none"]
        assert len(noise) > 3000
        assert float(noise.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(noise)))
    assert outcomes["split"].spent == outcomes["whole"].spent
    assert all(0 < epsilon < math.inf and not gaps for epsilon, gaps in outcomes["split"].spent.values())


def test_too_few_shares_are_refused_by_the_server_and_by_every_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites have 3, 2 and 1 training clients: without the largest other, 3 shares are the most that hide everybody."""
    make_tables(tmp_path)
    said = "train of round 0 must hold 4 shares of noise for the clients of south without those of the 1 largest other"
    with pytest.raises(NotOpenedError, match=said):
        driver(tmp_path, private(split=4)).run()
    monkeypatch.setattr(Split, "require_enough", lambda *_: None)
    with pytest.raises(NotOpenedError, match="train of round 0 must be opened by 2 sites, got north"):
        driver(tmp_path, private(split=4)).run()


def test_who_sits_a_round_out_adds_its_share_all_the_same(tmp_path: Path) -> None:
    """Half of the six train: the noise of all six shares, on an average of three."""
    make_tables(tmp_path)
    half, weights = Participation(train=0.5), []
    for one in (private(participation=half), private(std=0.0, on=False, participation=half)):
        made = driver(tmp_path, one)
        made.store.file.unlink(missing_ok=True)
        made.run()
        weights.append(torch.cat([part.flatten() for part in made.weights.values()]))
    noise = weights[0] - weights[1]
    assert float(noise.std()) == pytest.approx(SIGMA * math.sqrt(6 / 3) / 3, rel=5 / math.sqrt(2 * len(noise)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"masking": Masking(split=3)}, "split must be left out where sums are not masked, got 3"),
        ({"weighting": "samples"}, "split must be left out with DP-SGD or unequal votes"),
        ({"protection": Protection(Gaussian(1.0, 1.0))}, "split must be left out unless models have a bound"),
        ({"protection": Protection(update=Gaussian(1.0))}, "split must be left out unless models have a bound"),
        (
            {"protection": Protection(update=Gaussian(1.0, 1.0), steps=StepNoise(1.0, 1.0))},
            "split must be left out with DP-SGD",
        ),
        ({"masking": Masking(on=True, bits=32, fraction=20, split=3)}, "fraction must have at least 24 bits"),
    ],
)
def test_what_cannot_be_split_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        private(**changed)
    with pytest.raises(InputError, match="split must be at least 2, got 1"):
        Masking(split=1)
    with pytest.raises(InputError, match="colluding must be at least 1, got 0"):
        Masking(colluding=0)
