"""What the account says of mechanisms that it has never heard of: pure ε, ∞, or nothing that it could calibrate."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from laplace import Laplace, ScalableLaplace, Unaccounted

from gfl_lightning.checks import InputError
from gfl_lightning.privacy.account import PrivacyAccount
from gfl_lightning.privacy.gaussian import gaussian_epsilon
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Attendance
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts

N, ROUNDS = 4, 5
LATTICE = 1e-4
"""What rounding may add to a sensitivity, as a share of what is measured."""
FACTS = Facts(
    entries={"hidden": 4, "jacobian": 36, "update": 9},
    shared=torch.tensor([1, 2, 5, 10]),
    rate=torch.tensor([0.0, 0.2, 0.2, 0.1], dtype=torch.float64),
    steps=10,
    leverage=torch.full((N,), 0.25, dtype=torch.float64),
    diluted=torch.full((N,), 0.5, dtype=torch.float64),
    signal=0.8,
    everyone_shares=True,
)
PURE = Protection(hidden=Laplace(40.0, 1.0), jacobian=Laplace(600.0, 2.0), update=Laplace(30.0, 0.5))
HIDDEN, JACOBIAN, UPDATE = 2 * 2 * 1.0 / 40, 6 * 2 * 2.0 / 600, 3 * 2 * 0.5 / 30
"""√q Δ / b of one upload, any other data set being at Δ = 2 C."""


def attendance(rounds: range) -> Attendance:
    everyone = torch.full((N,), len(rounds))
    return everyone, everyone


def after_rounds(protection: Protection, guarantee: Guarantee) -> PrivacyAccount:
    """The account of a fit: planned, begun and charged."""
    account = PrivacyAccount(protection, guarantee)
    account.plan(FACTS, attendance, ROUNDS)
    account.begin(0, None)
    for _ in range(ROUNDS):
        account.charge()
    return account


def test_pure_releases_add_their_epsilon_whatever_the_delta() -> None:
    """The 5 rounds of ĥ, ∇ĥ and W, and one more ĥ to evaluate; a fellow client is promised the same."""
    for delta in (1e-5, 1e-9):
        report = after_rounds(PURE, Guarantee(delta=delta)).report()
        assert report is not None
        assert report.epsilon == pytest.approx(6 * HIDDEN + 5 * JACOBIAN + 5 * UPDATE, rel=LATTICE)
        assert report.epsilon_fellow == report.epsilon
        assert report.gaps == ()
        assert report.accountant == "exact and basic composition"
        assert report.protection["hidden"] == {"mechanism": "Laplace", "scale": 40.0, "clip": 1.0}


def test_samples_of_a_mean_are_protected_by_the_others() -> None:
    """A unit of one sample out of n moves the mean by 2 C / n; who shares a single one is at the most."""
    report = after_rounds(replace(PURE, unit="sample"), Guarantee(neighbours="zero_out")).report()
    assert report is not None
    assert report.epsilon == pytest.approx(6 * HIDDEN / 2 + 5 * JACOBIAN / 2 + 5 * UPDATE, rel=LATTICE)


def test_pure_epsilon_is_added_to_that_of_gaussian_releases() -> None:
    report = after_rounds(replace(PURE, jacobian=Gaussian(5.0, 2.0)), Guarantee()).report()
    assert report is not None
    rest = 6 * HIDDEN + 5 * UPDATE
    assert report.epsilon == pytest.approx(rest + gaussian_epsilon(math.sqrt(5) * 2 * 2.0 / 5.0, 1e-5), rel=LATTICE)
    assert report.epsilon_fellow == pytest.approx(
        rest + gaussian_epsilon(math.sqrt(0.25 * 5) * 2 * 2.0 / 5.0, 1e-5), rel=LATTICE
    )


@pytest.mark.parametrize(
    ("protection", "gap"),
    [
        (replace(PURE, hidden=Unaccounted(40.0, 1.0)), "ĥ_j (Unaccounted promises nothing)"),
        (replace(PURE, jacobian=Unaccounted(40.0, 1.0)), "∇ĥ_j (Unaccounted promises nothing)"),
        (replace(PURE, update=Unaccounted(40.0, 1.0)), "W_k (Unaccounted promises nothing)"),
        (replace(PURE, hidden=Laplace(40.0)), "ĥ_j (no bound)"),
        (replace(PURE, update=Laplace(clip=1.0)), "W_k (no noise)"),
    ],
)
def test_what_promises_nothing_is_said_to(protection: Protection, gap: str) -> None:
    account = after_rounds(protection, Guarantee())
    report = account.report()
    assert report is not None
    assert (report.epsilon, report.epsilon_fellow, report.gaps) == (math.inf, math.inf, (gap,))
    with pytest.raises(InputError, match="max_epsilon must allow at least one round, which spends inf"):
        after_rounds(protection, Guarantee(max_epsilon=8.0))


def test_only_what_can_be_scaled_is_calibrated() -> None:
    guarantee = Guarantee(max_epsilon=3.0, calibrate=True)
    with pytest.raises(InputError, match="calibrate must be false for Laplace, which cannot be scaled, got true"):
        after_rounds(PURE, guarantee)
    for scale in (0.0, 7.0):
        same = ScalableLaplace(scale, 1.0)
        report = after_rounds(Protection(same, same, same), guarantee).report()
        assert report is not None
        assert 0.99 * 3 < report.epsilon <= 3


def test_a_saved_account_knows_the_mechanism_again() -> None:
    account = after_rounds(PURE, Guarantee())
    again = PrivacyAccount(Protection(), Guarantee())
    again.load(account.save(seed=0), 0, account.ledger_state()["privacy"])
    assert again.in_force == PURE
    again.plan(FACTS, attendance, ROUNDS)
    again.begin(ROUNDS, account.ledger_state()["privacy"])
    assert again.report() == account.report()
