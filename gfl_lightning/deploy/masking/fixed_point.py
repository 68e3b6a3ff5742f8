"""Real numbers as whole numbers modulo 2^b, in which masks cancel to the bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfl_lightning.checks import InputError, require, require_count

Words = NDArray[np.unsignedinteger]
EXACT = 2**52


@dataclass(frozen=True)
class FixedPoint:
    """x ↦ round(2^f x) mod 2^b.

    The sum of n numbers is exact but for the rounding of each, so off by at most n 2^{−f−1}. It must not wrap around:
    each party may add at most :meth:`limit`, and a larger number is refused before it leaves.

    >>> code = FixedPoint(bits=32, fraction=16)
    >>> total = code.encode(torch.tensor([1.5, -2.0]), 2) + code.encode(torch.tensor([0.25, 1.0]), 2)
    >>> code.decode(total).tolist()
    [1.75, -1.0]

    Args:
        bits: b, 32 or 64: what a number takes on the wire.
        fraction: f, the bits behind the point.
    """

    bits: int = 64
    fraction: int = 32

    def __post_init__(self) -> None:
        require(self.bits in (32, 64), "bits", "be 32 or 64", self.bits)
        require_count("fraction", self.fraction)
        require(
            self.fraction <= self.bits - 8, "fraction", f"leave 8 of {self.bits} bits before the point", self.fraction
        )

    @property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """The whole numbers of arithmetic modulo 2^b, in the order of bytes that every machine agrees on."""
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    @property
    def _signed(self) -> torch.dtype:
        """The same words as torch has them."""
        return torch.int32 if self.bits == 32 else torch.int64

    def limit(self, parties: int) -> float:
        """The largest |x| that each of n parties may add: no sum of theirs can wrap around."""
        return min(EXACT, (2 ** (self.bits - 1) - 1) // parties) / 2**self.fraction

    def error(self, parties: int) -> float:
        """n 2^{−f−1}, the most by which a sum over n parties differs from that of the real numbers."""
        return parties * 2.0 ** (-self.fraction - 1)

    def encode(self, values: Tensor, parties: int) -> Words:
        """The numbers of one of n parties, as an array of its own."""
        largest = float(torch.stack(torch.aminmax(values)).abs().max()) if values.numel() else 0.0
        if not largest <= self.limit(parties):
            raise InputError(
                f"a masked upload must hold finite numbers of at most {self.limit(parties):.6g} for {parties} sites in "
                f"{self.bits} bits with {self.fraction} behind the point, got {largest:.6g}; bound the uploads, scale "
                "the features, or leave more bits before the point."
            )
        scaled = values.detach().to("cpu", torch.float64, copy=True).mul_(2.0**self.fraction).round_()
        return scaled.to(self._signed).numpy().view(self.word)

    def decode(self, words: Words) -> Tensor:
        """The real numbers that stand for these, in double precision."""
        signed = words.view(words.dtype.str.replace("u", "i")).astype(np.float64)
        return torch.from_numpy(signed / 2.0**self.fraction)

    def tensor(self, words: Words) -> Tensor:
        """The words as a tensor for the wire, whole numbers with a sign."""
        return torch.from_numpy(words.view(words.dtype.str.replace("u", "i")))

    def words(self, tensor: Tensor) -> Words:
        """The words of a tensor from the wire; a tensor of another type is refused."""
        require(tensor.dtype == self._signed, "a masked upload", f"be of {self._signed}", str(tensor.dtype))
        return tensor.contiguous().numpy().view(self.word)
