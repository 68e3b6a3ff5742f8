"""What is released, how it adds up by client, and what the sum is worth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from protections import protection

from gfl_lightning.checks import InputError
from gfl_lightning.privacy.accounting import SampledSteps, Spending, epsilon_of
from gfl_lightning.privacy.gaussian import gaussian_epsilon
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Ledger, calibrated
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts, releases
from gfl_lightning.privacy.report import privacy_report

N = 4
LATTICE = 1e-4
"""What rounding may add to a sensitivity, as a share of what is measured."""
ONES = torch.ones(N, dtype=torch.int64)
BOTH = (ONES, ONES)
FACTS = Facts(
    entries={"hidden": 3, "jacobian": 30, "update": 10},
    shared=torch.tensor([1, 2, 5, 10]),
    rate=torch.tensor([0.0, 0.2, 0.2, 0.1], dtype=torch.float64),
    steps=10,
    leverage=torch.full((N,), 0.25, dtype=torch.float64),
    diluted=torch.full((N,), 0.5, dtype=torch.float64),
    signal=0.8,
    everyone_shares=True,
)
BOUNDS: dict[str, Any] = {"hidden_clip": 1.0, "jacobian_clip": 2.0, "update_clip": 0.5}
WHOLE = protection(**BOUNDS, hidden_std=4.0, jacobian_std=5.0, update_std=3.0)
SGD = protection(step_clip=1.0, noise_multiplier=1.5, unit="sample", hidden_clip=1.0, hidden_std=0.5)
V1 = replace(FACTS, entries={"hidden": 3, "jacobian": 0, "update": 10})
ALONE = replace(FACTS, entries={"hidden": 0, "jacobian": 0, "update": 10})


def spent(noisy: Protection, guarantee: Guarantee, facts: Facts = FACTS, rounds: int = 5) -> tuple[float, float]:
    made = releases(noisy, guarantee, facts)
    ledger = Ledger.empty(N)
    for _ in range(rounds):
        ledger = ledger.after(made, BOTH)
    return ledger.epsilon(made, guarantee)


def test_a_clients_releases_compose_as_one_gaussian() -> None:
    """5 rounds of ĥ, ∇ĥ and W, and one more ĥ to evaluate; any other data set is at twice the bound."""
    hidden, jacobian, update = (2 * 1.0 / 4.0) ** 2, (2 * 2.0 / 5.0) ** 2, (2 * 0.5 / 3.0) ** 2
    server, fellow = spent(WHOLE, Guarantee())
    assert server == pytest.approx(
        gaussian_epsilon(math.sqrt(6 * hidden + 5 * jacobian + 5 * update), 1e-5), rel=LATTICE
    )
    mixed = 0.25 * (6 * hidden + 5 * jacobian) + 0.5 * 5 * update
    assert fellow == pytest.approx(gaussian_epsilon(math.sqrt(mixed), 1e-5), rel=LATTICE)


def test_against_nothing_the_sensitivity_is_half_of_that_against_anything() -> None:
    twice = protection(**BOUNDS, hidden_std=8.0, jacobian_std=10.0, update_std=6.0)
    assert spent(WHOLE, Guarantee(neighbours="zero_out")) == pytest.approx(spent(twice, Guarantee()), rel=LATTICE)


def test_a_sample_hides_among_the_others_of_its_mean_but_not_in_the_update() -> None:
    """The client with one sample counts: its mean is that sample. The update may change to any other all the same."""
    made = releases(replace(WHOLE, unit="sample"), Guarantee(neighbours="zero_out"), FACTS)
    hidden, jacobian, update = (made.costs[kind].mu_squared for kind in ("hidden", "jacobian", "update"))
    assert hidden.tolist() == pytest.approx([(1.0 / n / 4.0) ** 2 for n in (1, 2, 5, 10)], rel=LATTICE)
    assert jacobian.tolist() == pytest.approx([(2.0 / n / 5.0) ** 2 for n in (1, 2, 5, 10)], rel=LATTICE)
    assert update.tolist() == pytest.approx([(2 * 0.5 / 3.0) ** 2] * 4, rel=LATTICE)


def test_local_steps_are_accounted_by_their_rate_only_against_nothing() -> None:
    sampled = spent(SGD, Guarantee(neighbours="zero_out"), V1)
    expected = Spending(6 * (1.0 / 0.5) ** 2, (SampledSteps(1.5, 0.2, 50),))
    assert sampled[0] == pytest.approx(epsilon_of(expected, 1e-5), rel=LATTICE)
    whole = spent(SGD, Guarantee(neighbours="replace"), V1)
    assert whole[0] == pytest.approx(gaussian_epsilon(math.sqrt(6 * 4**2 + 50 * (2 / 1.5) ** 2), 1e-5), rel=LATTICE)


def test_only_who_takes_part_pays() -> None:
    made = releases(WHOLE, Guarantee(), FACTS)
    ledger = Ledger.empty(N).after(made, (torch.tensor([0, 3, 0, 0]), torch.tensor([1, 0, 2, 0])), rounds=3)
    hidden, jacobian, update = (made.costs[kind].mu_squared[0] for kind in ("hidden", "jacobian", "update"))
    expected = torch.stack([hidden + jacobian, 3 * update, 2 * (hidden + jacobian), 0 * update])
    assert torch.allclose(ledger.server, expected)
    assert ledger.rounds == 3


def test_old_uploads_are_evaluated_once_more() -> None:
    made = releases(WHOLE, Guarantee(), replace(FACTS, everyone_shares=False))
    ledger = Ledger.empty(N).after(made, BOTH)
    fresh = releases(WHOLE, Guarantee(), FACTS)
    assert ledger.epsilon(made, Guarantee())[0] > Ledger.empty(N).after(fresh, BOTH).epsilon(fresh, Guarantee())[0]


@pytest.mark.parametrize(
    ("options", "facts", "gaps"),
    [
        (
            {"hidden_std": 1.0},
            FACTS,
            ("ĥ_j (no bound)", "∇ĥ_j (neither bound nor noise)", "W_k (neither bound nor noise)"),
        ),
        ({"hidden_clip": 1.0}, V1, ("ĥ_j (no noise)", "W_k (neither bound nor noise)")),
        ({**BOUNDS, "hidden_std": 1.0, "update_std": 1.0}, FACTS, ("∇ĥ_j (no noise)",)),
        (
            {"hidden_clip": 1.0, "hidden_std": 1.0, "step_clip": 1.0, "noise_multiplier": 1.0},
            V1,
            ("W_k (neither bound nor noise; DP-SGD protects samples, not clients)",),
        ),
        ({"step_clip": 1.0, "unit": "sample"}, ALONE, ("W_k (neither bound nor noise)",)),
    ],
)
def test_one_unprotected_release_is_no_guarantee_and_is_named(
    options: dict[str, Any], facts: Facts, gaps: tuple[str, ...]
) -> None:
    noisy = protection(**options)
    made = releases(noisy, Guarantee(), facts)
    assert made.gaps == gaps
    ledger = Ledger.empty(N).after(made, BOTH)
    assert ledger.epsilon(made, Guarantee()) == (math.inf, math.inf)
    sentence = privacy_report(ledger, 1, made, noisy, Guarantee()).sentence()
    assert sentence == f"no guarantee: ε = ∞, unprotected: {', '.join(gaps)}"


def test_a_gap_is_never_closed_again() -> None:
    open_made, closed = (releases(p, Guarantee(), FACTS) for p in (protection(hidden_std=1.0), WHOLE))
    ledger = Ledger.empty(N).after(open_made, BOTH).after(closed, BOTH)
    assert ledger.epsilon(closed, Guarantee())[0] == math.inf
    assert "first 7 rounds" in Ledger.empty(N).unprotected_before(7).gaps[0]


def test_saved_and_loaded_it_is_the_same() -> None:
    for noisy, facts in ((WHOLE, FACTS), (SGD, V1)):
        made = releases(noisy, Guarantee(neighbours="zero_out"), facts)
        ledger = Ledger.empty(N).after(made, BOTH)
        again = Ledger.from_state(ledger.state_dict())
        assert again.after(made, BOTH).epsilon(made, Guarantee()) == ledger.after(made, BOTH).epsilon(made, Guarantee())
        assert again.rounds == 1


@pytest.mark.parametrize(
    ("bounds", "facts"),
    [
        (protection(**BOUNDS), FACTS),
        (replace(WHOLE, unit="sample"), FACTS),
        (protection(step_clip=1.0, unit="sample", hidden_clip=1.0), V1),
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("neighbours", ["replace", "zero_out"])
def test_calibration_spends_the_budget_and_no_more(
    bounds: Protection, facts: Facts, epsilon: float, neighbours: Any
) -> None:
    guarantee = Guarantee(max_epsilon=epsilon, calibrate=True, neighbours=neighbours)
    noisy = calibrated(bounds, guarantee, facts, (5 * ONES, 5 * ONES), 5)
    server, _ = spent(noisy, guarantee, facts)
    assert (0.9999 if noisy.steps.is_inert else 0.99) * epsilon < server <= epsilon
    assert noisy.steps.is_inert or not noisy.update.is_noisy


def test_stated_noise_says_the_proportions() -> None:
    guarantee = Guarantee(max_epsilon=2.0, calibrate=True)
    noisy = calibrated(WHOLE, guarantee, FACTS, (5 * ONES, 5 * ONES), 5)
    stds = []
    for before, after in ((WHOLE.hidden, noisy.hidden), (WHOLE.jacobian, noisy.jacobian), (WHOLE.update, noisy.update)):
        assert isinstance(after, Gaussian)
        assert after.clip == before.clip
        stds.append(after.std)
    assert stds[0] / stds[2] == pytest.approx(4 / 3)
    assert stds[1] / stds[2] == pytest.approx(5 / 3)


def test_calibration_needs_a_bound_on_everything() -> None:
    with pytest.raises(InputError, match=r"calibrate must find a bound .*, got W_k \(neither bound nor noise\)"):
        calibrated(protection(hidden_clip=1.0, jacobian_clip=1.0), Guarantee(max_epsilon=1.0), FACTS, BOTH, 1)


def test_the_report_says_what_it_is_about() -> None:
    made = releases(WHOLE, Guarantee(), FACTS)
    report = privacy_report(Ledger.empty(N).after(made, BOTH), 1, made, WHOLE, Guarantee())
    assert report.sentence().startswith(
        f"ε = {report.epsilon:.4g} against the server, {report.epsilon_fellow:.4g} against"
    )
    assert report.scope() == (
        "unit: one client's whole data set, replaced by any other; "
        "composed: W_k + ĥ_j + ∇ĥ_j in 1 rounds, by every client that takes part; "
        "not covered: metrics and files of the run but what `export` writes, which are the experimenter's own"
    )
    assert report.accountant == "exact"
    assert report.protection == {
        "hidden": {"mechanism": "Gaussian", "std": 4.0, "clip": 1.0},
        "jacobian": {"mechanism": "Gaussian", "std": 5.0, "clip": 2.0},
        "update": {"mechanism": "Gaussian", "std": 3.0, "clip": 0.5},
    }
