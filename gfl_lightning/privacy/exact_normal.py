"""Normal numbers rounded to a lattice, each point with exactly the probability of its cell: whole numbers alone.

J = ⌊2^b Z⌉ for a standard normal Z, b = 24 unless another is asked for. Z = ± (k + x) comes from Karney's algorithm
(Sampling exactly from the normal distribution, 2016): k with probability in proportion to exp(−k²/2), x uniform in [0,
1), kept with probability exp(−k x − x²/2), so that the density of k + x is in proportion to exp(−(k + x)²/2). Every
decision compares uniform numbers of which as many bits are drawn as the decision takes; nothing is ever rounded but
the result.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfl_lightning.privacy.noise_source import NoiseSource

FINENESS = 24
WORD = 31
CHUNK = 2**16

Whole = NDArray[np.int64]
Words = NDArray[np.int32]
Truths = NDArray[np.bool_]


def rounded_normal(shape: tuple[int, ...], source: NoiseSource, fineness: int = FINENESS) -> Tensor:
    """⌊2^b Z⌉ for independent standard normal Z and a fineness b of at most 30, as whole numbers.

    >>> rounded_normal((2, 3), NoiseSource(bytes(32))).dtype
    torch.int64
    """
    assert fineness < WORD
    found = torch.empty(shape, dtype=torch.int64)
    flat = found.view(-1).numpy()
    for start in range(0, len(flat), CHUNK):
        _fill(flat[start : start + CHUNK], source, fineness)
    return found


def _fill(place: Whole, source: NoiseSource, fineness: int) -> None:
    """Fill a place with draws: candidates, a good 2 of 3 of which are kept, until there are enough."""
    filled = 0
    while filled < len(place):
        size = (len(place) - filled) * 3 // 2 + 8
        k, x = _whole_parts(size, source), Uniform(size, source)
        kept = _survives(x, np.arange(size), 2, source)
        for trial in range(int(k.max())):
            asked = np.flatnonzero(kept & (k > trial))
            kept[asked] = _survives(x, asked, 1, source)
        good = np.flatnonzero(kept)[: len(place) - filled]
        steps = (k[good] << fineness) + ((x.leading(fineness + 1)[good].astype(np.int64) + 1) >> 1)
        sign = 1 - 2 * (_words(len(good), source) & 1)
        place[filled : filled + len(good)] = sign * steps
        filled += len(good)


class Uniform:
    """Independent x in [0, 1), by words of bits that are drawn when they are first needed.

    Args:
        size: how many.
        source: of the bits.
        word: bits of a word.
    """

    def __init__(self, size: int, source: NoiseSource, word: int = WORD) -> None:
        self._source, self._size, self._word = source, size, word
        self._bits = [self._drawn(size)]

    def leading(self, bits: int) -> Words:
        """⌊2^bits x⌋."""
        return self._bits[0] >> (self._word - bits)

    def exceed(self, rows: Whole) -> Truths:
        """Whether each x of some rows exceeds a new uniform number of its own."""
        larger, still = np.zeros(len(rows), dtype=bool), np.arange(len(rows))
        for level in count():
            if len(still) == 0:
                return larger
            if level == len(self._bits):
                self._bits.append(self._drawn(self._size))
            own, other = self._bits[level][rows[still]], self._drawn(len(still))
            larger[still[other < own]] = True
            still = still[other == own]
        raise AssertionError

    def _drawn(self, size: int) -> Words:
        return _words(size, self._source) >> (WORD - self._word)


def _survives(x: Uniform, rows: Whole, power: int, source: NoiseSource) -> Truths:
    """True with probability exp(−x^p/p) for p = 1 or 2, for each of some rows.

    Of trials with probabilities x^p/(p j), j = 1, 2, …, the number of successes in a row is even just so often.
    """
    even, still = np.zeros(len(rows), dtype=bool), np.arange(len(rows))
    for j in count(1):
        if len(still) == 0:
            return even
        succeeds = _one_in(power * j, len(still), source)
        for _ in range(power):
            asked = np.flatnonzero(succeeds)
            succeeds[asked] = x.exceed(rows[still[asked]])
        even[still[~succeeds]] = j % 2 == 1
        still = still[succeeds]
    raise AssertionError


def _one_in(q: int, size: int, source: NoiseSource) -> Truths:
    """True with probability 1/q."""
    if q == 1:
        return np.ones(size, dtype=bool)
    share = 2**WORD // q
    words = _words(size, source)
    while len(beyond := np.flatnonzero(words >= share * q)):
        words[beyond] = _words(len(beyond), source)
    return words < share


def _whole_parts(size: int, source: NoiseSource) -> Whole:
    """k ≥ 0 with probability in proportion to exp(−k²/2)."""
    words = _words(size, source)
    table = _first_words()
    k = np.searchsorted(table, words, side="left")
    for row in np.flatnonzero(table[k] == words):
        k[row] = _whole_part(int(words[row]), source)
    return k.astype(np.int64)


def _whole_part(word: int, source: NoiseSource) -> int:
    """The same for one uniform number, which begins with a word: the least k below whose share it is."""
    digits = [word]
    for k in count():
        for level in count():
            if level == len(digits):
                digits.append(int(_words(1, source)[0]))
            if digits[level] != cumulative_word(k, level):
                break
        if digits[level] < cumulative_word(k, level):
            return k
    raise AssertionError


@lru_cache(maxsize=1)
def _first_words() -> Words:
    """The first words of the cumulative shares, up to the first that is all ones."""
    found = [cumulative_word(0, 0)]
    while found[-1] < 2**WORD - 1:
        found.append(cumulative_word(len(found), 0))
    return np.array(found, dtype=np.int32)


@lru_cache(maxsize=1024)
def cumulative_word(k: int, level: int, spare: int = 60) -> int:
    """Word number ``level`` of Σ_{i≤k} exp(−i²/2) / Σ_i exp(−i²/2) in binary, from so many ``spare`` decimals.

    >>> cumulative_word(0, 0) / 2**31
    0.570...
    """
    places = 19 * (level + 1) + spare
    with localcontext(Context(prec=places + 10)):
        terms = [Decimal(1)]
        while terms[-1] > Decimal(10) ** -(places + 5):
            terms.append((Decimal(-(len(terms) ** 2)) / 2).exp())
        above = sum(terms[k + 1 :], Decimal(0)) if k + 1 < len(terms) else (Decimal(-((k + 1) ** 2)) / 2).exp()
        share = 1 - above / sum(terms)
        return int(share * 2 ** (WORD * (level + 1))) % 2**WORD


def _words(size: int, source: NoiseSource) -> Words:
    """Whole numbers, uniform on 31 bits."""
    words: Words = source.words(size, torch.int32).numpy()
    words &= 2**WORD - 1
    return words
