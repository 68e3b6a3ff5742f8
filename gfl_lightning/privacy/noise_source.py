"""Random numbers of one draw: ChaCha20 under a key of 256 bits, turned into uniform and normal numbers.

A draw that hides something must not be guessed from its seed, nor from other draws. Torch's generator on the CPU uses
32 bits of a seed; this stream has the strength of the cipher, and is as quick.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

KEY_BYTES = 32
_NONCE = bytes(16)  # a key is used for one stream, so that block numbers alone tell its blocks apart
_POSITIVE = {torch.int32: 2**31 - 1, torch.int64: 2**63 - 1}


class NoiseSource:
    """The stream of one draw; every call goes on where the last one ended. All numbers are on the CPU.

    >>> first, second = NoiseSource(bytes(32)), NoiseSource(bytes(32))
    >>> first.normal((2, 3)).dtype, torch.equal(first.uniform((4,)), second.uniform((4,)))
    (torch.float64, False)

    Args:
        key: 32 bytes, of this stream alone.
    """

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()

    def words(self, count: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Whole numbers, each uniform on all values of ``int32`` or ``int64``."""
        size = count * dtype.itemsize
        buffer = bytearray(size)
        self._stream.update_into(bytes(size), buffer)
        return torch.frombuffer(buffer, dtype=dtype) if count else torch.empty(0, dtype=dtype)

    def uniform(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
        """Numbers in (0, 1], exact to the last bit that the type has, also the small ones."""
        kind = torch.int64 if dtype == torch.float64 else torch.int32
        largest = _POSITIVE[kind]
        words = self.words(math.prod(shape), kind).bitwise_and_(largest)
        return words.to(dtype).add_(0.5).mul_(1 / (largest + 1)).view(shape)

    def generator(self) -> np.random.Generator:
        """NumPy's Philox under 128 bits of the stream, for draws that NumPy offers and this source does not."""
        low, high = (int(word) % 2**64 for word in self.words(2))
        return np.random.Generator(np.random.Philox(key=high << 64 | low))

    def normal(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
        """Standard normal numbers by Box and Muller, √(−2 ln u) times cos and sin of 2πv: at most 9.4 in double."""
        count = math.prod(shape)
        length, angle = self.uniform((2, (count + 1) // 2), dtype).unbind()
        length, angle = length.log_().mul_(-2).sqrt_(), angle.mul_(2 * math.pi)
        return torch.cat([length * angle.cos(), length.mul_(angle.sin_())])[:count].view(shape)
