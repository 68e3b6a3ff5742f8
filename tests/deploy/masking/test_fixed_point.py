"""Real numbers modulo 2^b: sums within the stated error, nothing that could wrap around leaves a site."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.fixed_point import FixedPoint

codes = st.sampled_from([FixedPoint(), FixedPoint(32, 16), FixedPoint(64, 40), FixedPoint(32, 20)])


@given(code=codes, parties=st.integers(1, 40), seed=st.integers(0, 2**32), at_the_limit=st.booleans())
def test_a_sum_is_off_by_no_more_than_stated(code: FixedPoint, parties: int, seed: int, at_the_limit: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = 2 * torch.rand(parties, 5, generator=generator, dtype=torch.float64) - 1
    values = values.sign() * code.limit(parties) if at_the_limit else values * min(code.limit(parties), 50.0)
    total = sum((code.encode(row, parties) for row in values[1:]), code.encode(values[0], parties))
    rounding = parties * torch.finfo(torch.float64).eps * float(values.abs().sum(0).max())
    torch.testing.assert_close(code.decode(total), values.sum(0), rtol=0, atol=code.error(parties) + rounding)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**31, -(2.0**31)])
def test_what_could_wrap_around_is_refused_before_it_leaves(value: float) -> None:
    with pytest.raises(InputError, match=r"finite numbers of at most 1.04858e\+06 for 4 sites"):
        FixedPoint().encode(torch.tensor([0.0, value]), 4)


@given(code=codes, parties=st.integers(1, 40))
def test_the_limit_is_the_largest_that_is_safe(code: FixedPoint, parties: int) -> None:
    words = code.encode(torch.tensor([code.limit(parties)], dtype=torch.float64), parties)
    assert parties * int(words[0]) < 2 ** (code.bits - 1)


def test_numbers_keep_their_own_memory() -> None:
    values = torch.ones(3, dtype=torch.float64)
    FixedPoint().encode(values, 2)[:] = 0
    assert values.tolist() == [1, 1, 1]


def test_words_survive_the_wire_and_others_are_refused() -> None:
    for code in (FixedPoint(), FixedPoint(32, 16)):
        words = code.encode(torch.tensor([-1.5, 2.0]), 3)
        assert (code.words(code.tensor(words)) == words).all()
    with pytest.raises(InputError, match=r"a masked upload must be of torch\.int64, got 'torch.float64'"):
        FixedPoint().words(torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("bits", "fraction", "text"), [(16, 8, "bits"), (64, 60, "leave 8 of 64"), (32, 0, "fraction")]
)
def test_bad_options_are_refused(bits: int, fraction: int, text: str) -> None:
    with pytest.raises(InputError, match=text):
        FixedPoint(bits, fraction)
