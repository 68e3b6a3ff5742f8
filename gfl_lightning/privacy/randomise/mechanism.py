"""The contract of mechanisms that randomise a record once: what comes in, what goes out, what is promised."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from gfl_lightning.checks import require
from gfl_lightning.graphs.losses.loss import Loss

Array = NDArray[np.float64]


class FeatureMechanism(ABC):
    """x ↦ x̃ for the features of a record: the law of x̃ differs by at most a factor e^ε between any two records.

    (Beyond that with probability δ, where δ is not 0.) Whatever is computed from x̃ afterwards, however often and by
    whomever, promises the same. A subclass is a frozen dataclass of its options whose docstring says why the promise
    holds; it says what a draw is on average, and draws.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sign(FeatureMechanism):
    ...     def width(self, num_features: int) -> int:
    ...         return 1
    ...
    ...     def expected(self, x: Array) -> Array:
    ...         return np.where(x[:, :1] > 0, 1.0, -1.0)
    ...
    ...     def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
    ...         kept = source.random(len(x)) < 1 / (1 + math.exp(-epsilon))
    ...         return np.where(kept, 1, -1)[:, None] * self.expected(x) / math.tanh(epsilon / 2)
    >>> Sign().draw(np.array([[3.0], [-1.0]]), math.inf, np.random.default_rng(0)).tolist()
    [[1.0], [-1.0]]
    """

    @property
    def delta(self) -> float:
        """δ of a draw; 0 where the promise is pure."""
        return 0.0

    def width(self, num_features: int) -> int:
        """How many numbers x̃ has for records of so many features."""
        return num_features

    @abstractmethod
    def expected(self, x: Array) -> Array:
        """E x̃ of records x ``[n, d]``: the record on the scale of the mechanism, not private."""

    @abstractmethod
    def drawn(self, x: Array, epsilon: float, source: np.random.Generator) -> Array:
        """x̃ of records x ``[n, d]``, all independent, each ε-private; ε is positive and finite."""

    def draw(self, x: Array, epsilon: float, source: np.random.Generator, records: int = 1) -> Array:
        """x̃ where several records together spend ε: nothing (zeros) of ε = 0, the mean of ε = ∞."""
        require_finite("x", x)
        if epsilon == 0:
            return np.zeros((len(x), self.width(x.shape[1])))
        return self.expected(x) if math.isinf(epsilon) else self.drawn(x, epsilon / records, source)


def require_finite(name: str, values: Array) -> None:
    """Refuse what no mechanism has a law for: a comparison with nan is never true, whatever is drawn."""
    count = int((~np.isfinite(values)).sum())
    require(count == 0, name, "hold finite numbers alone", f"{count} that are not")


class LabelMechanism(ABC):
    """y ↦ ỹ for the label of a record, with the same promise, and the loss that is corrected for it."""

    @abstractmethod
    def check(self, loss: Loss) -> None:
        """Refuse labels of another kind than the mechanism is for."""

    def scaled(self, loss: Loss) -> Loss:
        """The loss that samples have before it is corrected, on a scale that no label has a part in."""
        return loss

    @abstractmethod
    def draw(self, y: Array, outputs: int, epsilon: float, source: np.random.Generator) -> Array:
        """ỹ of labels y ``[n]`` with c outputs, all independent, each ε-private; y itself where ε = ∞."""

    @abstractmethod
    def corrected(self, loss: Loss, outputs: int, epsilon: float) -> Loss:
        """The loss of randomised labels."""

    @abstractmethod
    def shown(self, y: Array, outputs: int, loss: Loss, epsilon: float) -> Array:
        """Randomised labels as features ``[n, c]``, on average those of the true label, centred."""
