"""Accountants against each other and against known values; failures fall back, never below the truth."""

from __future__ import annotations

import math
import warnings

import pytest

from gfl_lightning.checks import InputError
from gfl_lightning.privacy import accounting
from gfl_lightning.privacy.accounting import (
    SampledSteps,
    Spending,
    epsilon_of,
    least_multiplier,
    prv_epsilon,
    rdp_epsilon,
)

DELTA = 1e-5
SAMPLED = Spending(0.5, (SampledSteps(1.0, 0.01, 1000),))


@pytest.mark.parametrize(
    ("z", "steps", "exact", "prv", "rdp"), [(1.0, 100, 91.82, 91.83, 96.12), (5.0, 400, 24.38, 24.39, 25.93)]
)
def test_three_accountants_on_known_values(z: float, steps: int, exact: float, prv: float, rdp: float) -> None:
    events = Spending(0.0, (SampledSteps(z, 1.0, steps),))
    assert epsilon_of(events, DELTA) == pytest.approx(exact, abs=0.005)
    assert prv_epsilon(events, DELTA) == pytest.approx(prv, abs=0.005)
    assert rdp_epsilon(events, DELTA) == pytest.approx(rdp, abs=0.005)


def test_gaussian_releases_enter_each_accountant_the_same_way() -> None:
    """μ² beside the samples, or as that many steps on all samples."""
    events = Spending(0.0, (*SAMPLED.sampled, SampledSteps(2.0, 1.0, 2)))
    for accountant in (rdp_epsilon, prv_epsilon):
        assert accountant(SAMPLED, DELTA) == pytest.approx(accountant(events, DELTA), abs=0.02)
    assert epsilon_of(SAMPLED, DELTA) == pytest.approx(epsilon_of(events, DELTA))


def test_exact_lies_below_prv_below_rdp() -> None:
    gaussian_alone = epsilon_of(Spending(SAMPLED.mu_squared), DELTA)
    assert gaussian_alone < epsilon_of(SAMPLED, DELTA, "prv") < epsilon_of(SAMPLED, DELTA, "rdp")


def test_sampling_amplifies() -> None:
    whole, tenth = (Spending(0.0, (SampledSteps(2.0, rate, 100),)) for rate in (1.0, 0.1))
    assert epsilon_of(tenth, DELTA) < 0.5 * epsilon_of(whole, DELTA)


def test_epsilon_is_never_negative() -> None:
    assert epsilon_of(Spending(0.0, (SampledSteps(50.0, 0.01, 1),)), 1e-2) == 0


def test_no_noise_is_no_privacy() -> None:
    assert epsilon_of(Spending(0.0, (SampledSteps(0.0, 0.1, 1),)), DELTA) == math.inf
    assert epsilon_of(Spending(math.inf, SAMPLED.sampled), DELTA) == math.inf


def test_prv_is_not_tried_where_its_grid_would_take_all_memory() -> None:
    much = Spending(0.0, (SampledSteps(0.3, 0.5, 5000),))
    with pytest.warns(UserWarning, match="PRV accountant is not tried for an epsilon above 100"):
        assert epsilon_of(much, DELTA, "prv") == rdp_epsilon(much, DELTA)


@pytest.mark.parametrize(
    ("failure", "words"), [(math.inf, "returned inf"), (ValueError("no bracket"), r"failed \(ValueError: no bracket\)")]
)
def test_a_failing_prv_falls_back_with_a_warning(
    failure: float | Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(spending: Spending, delta: float) -> float:
        if isinstance(failure, Exception):
            raise failure
        return failure

    monkeypatch.setattr(accounting, "prv_epsilon", broken)
    with pytest.warns(UserWarning, match=words):
        assert epsilon_of(SAMPLED, DELTA, "prv") == rdp_epsilon(SAMPLED, DELTA)


def test_small_multipliers_and_many_steps_never_crash() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for z in (0.05, 0.3, 1.0):
            for steps in (1, 10_000):
                exact = epsilon_of(Spending(steps / z**2), DELTA, "prv")
                sampled = epsilon_of(Spending(0.0, (SampledSteps(z, 0.2, steps),)), DELTA, "prv")
                assert 0 < sampled <= 1.1 * exact + 1


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize("sampled", [False, True])
def test_calibration_is_the_least_noise_within_the_budget(epsilon: float, sampled: bool) -> None:
    def spending(z: float) -> Spending:
        return Spending(20 / z**2, (SampledSteps(z, 0.05, 200),) if sampled else ())

    z = least_multiplier(spending, epsilon, DELTA)
    assert epsilon_of(spending(z), DELTA) <= epsilon < epsilon_of(spending(z * 0.998), DELTA)


def test_refusals() -> None:
    with pytest.raises(InputError, match="accountant must be one of rdp, prv, got 'gdp'"):
        epsilon_of(SAMPLED, DELTA, "gdp")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="epsilon must be positive and finite, got -1"):
        least_multiplier(lambda z: SAMPLED, -1, DELTA)
    with pytest.raises(InputError, match=r"epsilon must be large enough for some noise to reach it, got 0\.1"):
        least_multiplier(lambda z: SAMPLED, 0.1, DELTA)
