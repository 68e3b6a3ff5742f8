"""t of n shares determine the secret; t − 1 of them fit every secret equally well."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.shamir import PRIME, SHARE_BYTES, combine, recover, split, weights_at_zero


def test_the_modulus_is_prime() -> None:
    assert PRIME > 2**256
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11, 13))
    d, s = PRIME - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        powers = [pow(base, d << i, PRIME) for i in range(s)]
        assert powers[0] == 1 or PRIME - 1 in powers, "Miller-Rabin"


@given(data=st.data(), n=st.integers(1, 12), secret=st.binary(min_size=32, max_size=32))
def test_any_t_shares_give_the_secret(data: st.DataObject, n: int, secret: bytes) -> None:
    threshold = data.draw(st.integers(1, n))
    points = data.draw(st.lists(st.integers(1, 500), min_size=n, max_size=n, unique=True))
    shares = dict(zip(points, split(secret, threshold, points), strict=True))
    chosen = data.draw(st.permutations(points))[: data.draw(st.integers(threshold, n))]
    assert recover({x: shares[x] for x in chosen}) == secret


def test_too_few_shares_fit_every_secret() -> None:
    """For any t − 1 shares and any secret there is one polynomial: so they say nothing."""
    threshold, points = 4, range(1, 8)
    shares = dict(zip(points, split(secrets.token_bytes(32), threshold, points), strict=True))
    known = {x: shares[x] for x in (1, 3, 6)}
    for other in (bytes(32), secrets.token_bytes(32), b"\xff" * 32):
        weights = weights_at_zero((*known, 7))
        rest = sum(weight * int.from_bytes(known[x], "big") for x, weight in weights.items() if x != 7)
        missing = (int.from_bytes(other, "big") - rest) * pow(weights[7], -1, PRIME) % PRIME
        assert combine({**known, 7: missing.to_bytes(SHARE_BYTES, "big")}, weights) == other


def test_shares_are_drawn_afresh() -> None:
    assert split(bytes(32), 2, (1, 2)) != split(bytes(32), 2, (1, 2))
    assert split(bytes(32), 1, (1, 2)) == [bytes(33), bytes(33)]


@pytest.mark.parametrize(
    ("secret", "threshold", "points", "text"),
    [
        (b"short", 1, (1,), "a secret must be of 32 bytes, got 5"),
        (bytes(32), 3, (1, 2), "threshold must lie in"),
        (bytes(32), 2, (0, 1), "points must differ and not be 0"),
        (bytes(32), 2, (1, 1), "points must differ"),
    ],
)
def test_bad_input_is_refused(secret: bytes, threshold: int, points: tuple[int, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        split(secret, threshold, points)
