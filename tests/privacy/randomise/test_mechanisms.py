"""Each mechanism against its own law: probabilities, means and the bound e^ε, by formula and by counting draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.privacy.gaussian import gaussian_delta
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.lattice import on_lattice
from gfl_lightning.privacy.randomise.mechanism import FeatureMechanism
from gfl_lightning.privacy.randomise.multi_bit import MultiBit
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit, cap
from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse, flip
from gfl_lightning.privacy.randomise.sphere import projection
from gfl_lightning.privacy.randomise.subset import Subset, chances
from gfl_lightning.privacy.randomise.withheld import Withheld

DRAWS = 40_000


def source(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def many(mechanism: FeatureMechanism, record: list[float], epsilon: float, seed: int = 0) -> np.ndarray:
    return mechanism.draw(np.tile(np.array([record]), (DRAWS, 1)), epsilon, source(seed))


def empirical_epsilon(hits: int, others: int, draws: int) -> float:
    """A lower bound on ε that holds with 99.9 %, from how often an event happened under two records."""
    low = stats.beta.ppf(5e-4, hits, draws - hits + 1)
    high = stats.beta.ppf(1 - 5e-4, others + 1, draws - others)
    return math.log(low / high)


@pytest.mark.parametrize(
    "mechanism", [PrivUnit(), PrivUnit(dimensions=3), Subset(), MultiBit(), GaussianDirection()], ids=repr
)
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
def test_a_draw_is_unbiased(mechanism: FeatureMechanism, epsilon: float) -> None:
    record = [0.0, 1.0, 1.0, 0.0, 0.5]
    drawn = many(mechanism, record, epsilon)
    error = drawn.std(0) / math.sqrt(DRAWS)
    expected = mechanism.expected(np.array([record]))[0]
    assert drawn.shape == (DRAWS, mechanism.width(5))
    assert (np.abs(drawn.mean(0) - expected) < 5 * error + 1e-12).all()


@pytest.mark.parametrize("mechanism", [PrivUnit(), PrivUnit(dimensions=3), Subset(), MultiBit(), GaussianDirection()])
def test_without_a_budget_nothing_is_drawn_and_without_a_bound_everything(mechanism: FeatureMechanism) -> None:
    record = np.array([[0.0, 1.0, 1.0, 0.0, 0.5]])
    assert not mechanism.draw(record, 0.0, source()).any()
    np.testing.assert_array_equal(mechanism.draw(record, math.inf, source()), mechanism.expected(record))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0, 20.0])
def test_the_two_densities_of_priv_unit_are_a_factor_of_e_to_the_epsilon_apart(epsilon: float) -> None:
    gamma, p, mean = cap(epsilon)
    q = float(ndtr(-gamma))
    assert math.log(p / q) - math.log((1 - p) / (1 - q)) == pytest.approx(epsilon, rel=1e-9)

    def of(other: float) -> float:
        q = float(ndtr(-other))
        p = 1 / (1 + math.exp(-epsilon) * (1 - q) / q)
        return float(stats.norm.pdf(other)) * (p / q - (1 - p) / (1 - q))

    assert mean == pytest.approx(of(gamma))
    assert all(of(other) <= mean + 1e-9 for other in np.linspace(-1, 6, 200))


@pytest.mark.parametrize(("epsilon", "noise"), [(3.0, 0.9), (8.0, 0.41)])
def test_priv_unit_follows_its_law(epsilon: float, noise: float) -> None:
    """Along v a truncated normal number on either side of γ; across it a normal one; whatever the dimension."""
    gamma, p, mean = cap(epsilon)
    v = np.array([0.6, 0.0, 0.8, 0.0])
    drawn = many(PrivUnit(), v.tolist(), epsilon) * mean
    along = drawn @ v
    assert stats.binomtest(int((along >= gamma).sum()), DRAWS, p).pvalue > 1e-4
    assert stats.kstest(along[along >= gamma], stats.truncnorm(gamma, np.inf).cdf).pvalue > 1e-4
    assert stats.kstest(along[along < gamma], stats.truncnorm(-np.inf, gamma).cdf).pvalue > 1e-4
    assert stats.kstest(drawn[:, 1], stats.norm.cdf).pvalue > 1e-4
    assert 1 / mean == pytest.approx(noise, abs=0.05)


def test_priv_unit_shows_no_more_than_epsilon_and_not_much_less() -> None:
    """The likelihood ratio of opposite records is largest where the draw lies in the cap of one of them."""
    epsilon = 2.0
    gamma, _, mean = cap(epsilon)
    hits = many(PrivUnit(), [1.0, 0.0], epsilon, 1)[:, 0] * mean >= gamma
    others = many(PrivUnit(), [-1.0, 0.0], epsilon, 2)[:, 0] * mean >= gamma
    assert 0.8 * epsilon < empirical_epsilon(int(hits.sum()), int(others.sum()), DRAWS) <= epsilon


@pytest.mark.parametrize("mechanism", [PrivUnit(), PrivUnit(dimensions=2), Subset(), MultiBit(), GaussianDirection()])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(mechanism: FeatureMechanism, bad: float) -> None:
    with pytest.raises(InputError, match=r"x must hold finite numbers alone, got .1 that are not."):
        mechanism.draw(np.array([[0.0, bad, 1.0]]), 1.0, source())


def test_labels_that_are_none_are_refused() -> None:
    for y in (-1, 3):
        with pytest.raises(InputError, match=rf"y must hold classes from 0 to 2 alone, got \[{y}\]"):
            RandomisedResponse().draw(np.array([y]), 3, 1.0, source())
    with pytest.raises(InputError, match="y must hold finite numbers alone"):
        Piecewise(0.0, 1.0).draw(np.array([math.nan]), 1, 1.0, source())


@pytest.mark.parametrize("scale", [1e-310, 1e-162, 1e-20, 1e20, 1e160, 1e308])
def test_a_direction_has_length_1_however_small_or_large_the_record_is(scale: float) -> None:
    """Where squares underflow or overflow a norm is wrong, and a v of another length would show more than ε."""
    record = np.array([[3.0, -4.0, 0.5]]) * (scale / 5)
    for mechanism in (PrivUnit(), PrivUnit(dimensions=2), GaussianDirection()):
        assert np.linalg.norm(mechanism.expected(record)) == pytest.approx(1.0, rel=1e-12)
        np.testing.assert_allclose(mechanism.expected(record), mechanism.expected(record / scale), atol=1e-3)


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("other", [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [1e-200, 1.0, 0.0]], ids=str)
@pytest.mark.parametrize("mechanism", [PrivUnit(), Subset(), MultiBit(-1.0, 1.0)], ids=repr)
def test_no_event_tells_two_records_apart_by_more_than_epsilon(
    mechanism: FeatureMechanism, other: list[float], epsilon: float
) -> None:
    """Half-spaces along the first record, at every level; the others are none, another word, and the opposite."""
    first = many(mechanism, [1.0, 0.0, 0.0], epsilon, 1)[:, 0]
    second = many(mechanism, other, epsilon, 2)[:, 0]
    for level in np.unique(np.quantile(np.concatenate([first, second]), [0.05, 0.3, 0.5, 0.7, 0.9, 0.97])):
        for one, two in ((first, second), (second, first)):
            for hits in ((one >= level, two >= level), (one < level, two < level)):
                counts = [int(hit.sum()) for hit in hits]
                if counts[0] and counts[1] < DRAWS:
                    assert empirical_epsilon(*counts, DRAWS) <= epsilon


def test_a_record_without_a_direction_gets_a_uniform_one() -> None:
    drawn = many(PrivUnit(), [0.0, 0.0, 0.0], 8.0)
    assert (np.abs(drawn.mean(0)) < 5 * drawn.std(0) / math.sqrt(DRAWS)).all()
    assert (np.linalg.norm(drawn, axis=1) > 0).all()


def test_the_projection_is_public_and_keeps_lengths() -> None:
    np.testing.assert_array_equal(projection(500, 200), projection(500, 200))
    x = source().standard_normal((50, 500))
    ratio = np.linalg.norm(x @ projection(500, 200), axis=1) / np.linalg.norm(x, axis=1)
    assert abs(ratio.mean() - 1) < 0.03
    assert ratio.std() < 0.1


def test_draws_lie_on_a_lattice_that_single_precision_holds() -> None:
    for mechanism in (PrivUnit(), GaussianDirection()):
        drawn = mechanism.draw(source().standard_normal((100, 50)), 8.0, source())
        np.testing.assert_array_equal(drawn, drawn.astype(np.float32))
        assert len(np.unique(drawn)) < drawn.size
    np.testing.assert_allclose(on_lattice(np.array([1.0 + 1e-7]), 1.0), 1.0, atol=0)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 5.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_randomised_response_has_two_probabilities(epsilon: float, classes: int) -> None:
    mechanism, truth = RandomisedResponse(), np.full(DRAWS, 1)
    answers = np.bincount(mechanism.draw(truth, classes, epsilon, source()), minlength=classes)
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert stats.binomtest(int(answers[1]), DRAWS, keep).pvalue > 1e-4
    others = np.delete(answers, 1)
    if classes > 2:
        assert stats.chisquare(others).pvalue > 1e-4
    assert 1 - flip(epsilon, classes) + flip(epsilon, classes) / classes == pytest.approx(keep)
    shown = mechanism.shown(np.arange(classes), classes, CrossEntropy(), epsilon)
    law = np.full((classes, classes), (1 - keep) / (classes - 1)) + np.eye(classes) * (
        keep - (1 - keep) / (classes - 1)
    )
    np.testing.assert_allclose(law @ shown, np.eye(classes) - 1 / classes, atol=1e-9)


def test_very_large_budgets_do_not_overflow() -> None:
    assert flip(2000.0, 7) == 0.0
    assert RandomisedResponse().draw(np.array([3]), 7, math.inf, source()).tolist() == [3]
    assert chances(100, 500.0)[0] == 1
    assert np.isfinite(PrivUnit().draw(np.ones((3, 5)), 300.0, source())).all()


@pytest.mark.parametrize("epsilon", [0.5, 1.5, 4.0])
def test_subset_selection_draws_every_set_with_its_probability(epsilon: float) -> None:
    """All sets of k among d + 1 items, for a record with one word: e^ε to 1, and no set beyond that for any record."""
    d = 5
    k, a, _ = chances(d + 1, epsilon)
    drawn = many(Subset(), [0.0, 1.0, 0.0, 0.0, 0.0], epsilon)
    sets = [frozenset(np.flatnonzero(row)) for row in drawn > 0]
    with_word = math.comb(d, k - 1)
    weight = {True: math.exp(epsilon), False: 1.0}
    total = with_word * math.exp(epsilon) + math.comb(d, k)
    assert a == pytest.approx(with_word * math.exp(epsilon) / total)
    chance: dict[frozenset[int], float] = {}
    for items in itertools.combinations(range(d + 1), k):
        seen = frozenset(item for item in items if item < d)
        chance[seen] = chance.get(seen, 0.0) + weight[1 in items] / total
    counts = np.array([sum(one == found for found in sets) for one in chance])
    assert counts.sum() == DRAWS
    assert stats.chisquare(counts, DRAWS * np.array(list(chance.values()))).pvalue > 1e-4


def test_multi_bit_sends_bits_about_few_features() -> None:
    drawn = MultiBit(low=-1.0, high=3.0).draw(np.zeros((200, 10)), 5.0, source())
    assert ((drawn != 1.0).sum(1) == 2).all()
    t = math.tanh(5.0 / 2 / 2)
    np.testing.assert_allclose(np.abs(drawn[drawn != 1.0] - 1), 10 / 2 * 2 / t)
    up = [(many(MultiBit(), [x], 1.0, seed) > 0.5).sum() for seed, x in enumerate((0.0, 1.0))]
    assert 0.8 < empirical_epsilon(int(up[1]), int(up[0]), DRAWS) <= 1.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("value", [-3.0, 0.0, 7.0, 5.5])
def test_the_piecewise_mechanism_is_unbiased_and_within_bounds(epsilon: float, value: float) -> None:
    mechanism = Piecewise(-3.0, 7.0)
    drawn = mechanism.draw(np.full(DRAWS, value), 1, epsilon, source())
    C = (math.exp(epsilon / 2) + 1) / (math.exp(epsilon / 2) - 1)
    assert np.abs((drawn - 2) / 5).max() <= C * (1 + 1e-3)
    assert abs(drawn.mean() - value) < 5 * drawn.std() / math.sqrt(DRAWS)


def test_the_piecewise_mechanism_shows_no_more_than_epsilon() -> None:
    """Two values at the ends of the range: their likely intervals are apart, and each is e^ε times as likely there."""
    mechanism, epsilon = Piecewise(-1.0, 1.0), 1.5
    C = 1 / math.tanh(epsilon / 4)
    hits, others = (mechanism.draw(np.full(DRAWS, y), 1, epsilon, source(i)) > 1 for i, y in enumerate((1.0, -1.0)))
    assert 0.8 * epsilon < empirical_epsilon(int(hits.sum()), int(others.sum()), DRAWS) <= epsilon
    p = 1 / (1 + math.exp(-epsilon / 2))
    assert math.log((p / (C - 1)) / ((1 - p) / (C + 1))) == pytest.approx(epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0, math.inf])
def test_numbers_that_are_shown_have_deviation_1_where_truths_are_spread_evenly(epsilon: float) -> None:
    mechanism = Piecewise(-3.0, 7.0)
    drawn = mechanism.draw(np.linspace(-3.0, 7.0, 400_000), 1, epsilon, source())
    shown = mechanism.shown(drawn, 1, mechanism.scaled(SquaredError()), epsilon)
    assert shown.shape == (400_000, 1)
    assert shown.mean() == pytest.approx(0, abs=0.01)
    assert shown.std() == pytest.approx(1, rel=0.01)


def test_gaussian_noise_composes_exactly_over_the_records_of_a_client() -> None:
    mechanism = GaussianDirection(delta=1e-5)
    for records in (1, 9):
        drawn = mechanism.draw(np.tile([[1.0, 0.0]], (DRAWS, 1)), 2.0, source(), records)
        sigma = float(drawn[:, 1].std())
        assert gaussian_delta(2.0, 2 * math.sqrt(records) / sigma) == pytest.approx(1e-5, rel=0.3)


def test_withheld_features_are_no_features() -> None:
    assert Withheld().width(7) == 1
    assert Withheld().draw(np.ones((3, 7)), 2.0, source()).tolist() == [[0.0]] * 3


def test_labels_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="labels must be Piecewise where labels are numbers, got 'RandomisedResponse'"):
        RandomisedResponse().check(SquaredError())
    with pytest.raises(InputError, match="labels must be RandomisedResponse where labels are classes, got 'Piecewise'"):
        Piecewise(0.0, 1.0).check(CrossEntropy())
    for low, high in ((1.0, 1.0), (0.0, math.inf)):
        with pytest.raises(InputError, match="low and high must be finite, the first the lower"):
            Piecewise(low, high)
        with pytest.raises(InputError, match="low and high must be finite, the first the lower"):
            MultiBit(low, high)
    for kind in (PrivUnit, GaussianDirection):
        with pytest.raises(InputError, match="dimensions must be at least 1, got 0"):
            kind(dimensions=0)
