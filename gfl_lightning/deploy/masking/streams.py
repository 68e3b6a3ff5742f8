"""Masks: a key of 32 bytes drawn out to as many words as a sum has, by ChaCha20."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from gfl_lightning.deploy.masking.fixed_point import Words

CHUNK_BYTES = 2**16
ZEROS = memoryview(bytes(CHUNK_BYTES))
START = bytes(16)


def add_streams(words: Words, plus: Iterable[bytes] = (), minus: Iterable[bytes] = ()) -> None:
    """words ← words + Σ stream(plus) − Σ stream(minus) modulo 2^b, in place, one chunk after another in the cache.

    A key serves one sum only, so a stream always starts at its beginning.

    >>> words = np.zeros(3, dtype="<u8")
    >>> add_streams(words, plus=[bytes(32)])
    >>> add_streams(words, minus=[bytes(32)])
    >>> words.tolist()
    [0, 0, 0]
    """
    assert words.flags.c_contiguous
    flat, step, buffer = words.reshape(-1), CHUNK_BYTES // words.itemsize, bytearray(CHUNK_BYTES)
    streams = [
        (Cipher(ChaCha20(key, START), mode=None).encryptor(), combine)
        for keys, combine in ((plus, np.add), (minus, np.subtract))
        for key in keys
    ]
    for start in range(0, len(flat), step):
        part = flat[start : start + step]
        zeros = ZEROS[: part.nbytes]
        for stream, combine in streams:
            stream.update_into(zeros, buffer)
            combine(part, np.frombuffer(buffer, words.dtype, len(part)), out=part)
