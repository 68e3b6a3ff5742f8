"""Whether and how sums are masked, as typed, checked choices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gfl_lightning.checks import require, require_choice, require_count
from gfl_lightning.deploy.masking.columns import SingleNeighbour
from gfl_lightning.deploy.masking.fixed_point import FixedPoint
from gfl_lightning.deploy.masking.noise import NoiseRule, Split, Whole
from gfl_lightning.deploy.masking.quorum import Quorum
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism


@dataclass(frozen=True)
class Masking:
    """Masked sums; the default does not mask.

    >>> Masking(on=True, bits=32, fraction=20).code
    FixedPoint(bits=32, fraction=20)

    Args:
        on: whether sums are masked.
        bits: of a masked number on the wire, 32 or 64.
        fraction: how many of them are behind the point.
        least: how many sites a sum must hold beside each that learns it.
        threshold: how many sites open a sum; ``None`` is the least majority.
        single_neighbour: ``refuse``, or ``warn`` of, a client that hears of fewer than ``least`` sites.
        rounds_ahead: for how many rounds keys are exchanged at a time; a site that was away is back after them.
        split: over how many training clients the noise on models is split; ``None``: every client adds all of it.
        colluding: how many sites may tell the server what they know; where noise is split, theirs does not count.
    """

    on: bool = False
    bits: int = 64
    fraction: int = 32
    least: int = 2
    threshold: int | None = None
    single_neighbour: SingleNeighbour = "refuse"
    rounds_ahead: int = 20
    split: int | None = None
    colluding: int = 1

    def __post_init__(self) -> None:
        require(type(self.on) is bool, "masking.on", "be true or false", self.on)
        require_choice("single_neighbour", self.single_neighbour, ("refuse", "warn"))
        require_count("rounds_ahead", self.rounds_ahead, least=3)
        require_count("colluding", self.colluding)
        if self.split is not None:
            require_count("split", self.split, least=2)
        assert self.code
        assert self.quorum

    @property
    def code(self) -> FixedPoint:
        """Real numbers as whole ones."""
        return FixedPoint(self.bits, self.fraction)

    def noise(self, update: Mechanism) -> NoiseRule:
        """Who adds the noise that is stated for models; what cannot be split is refused."""
        if self.split is None:
            return Whole()
        fits = isinstance(update, Gaussian) and update.is_bounded and update.is_noisy
        require(fits, "split", "be left out unless models have a bound and Gaussian noise", self.split)
        assert isinstance(update, Gaussian)
        split = Split(update.std, update.clip, self.split, self.colluding)
        bits = -round(math.log2(split.step))
        require(
            self.fraction >= bits, "fraction", f"have at least {bits} bits for noise of {update.std}", self.fraction
        )
        return split

    @property
    def quorum(self) -> Quorum:
        """How many sites open a sum."""
        return Quorum(self.threshold, self.least)
