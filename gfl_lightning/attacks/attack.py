"""The contract of an attack: what it sees, what it guesses, how success is scored, what guessing scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Literal, TypeVar

from torch import Tensor

from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.views import Kinds, View

Adversary = Literal["server", "fellow client", "outsider"]
K = TypeVar("K", bound=Knowledge)


class Attack(ABC, Generic[K]):
    """guess = f(messages, side knowledge); success = score(guess, truth), beside that of a guess without messages.

    A subclass is a frozen dataclass of its options. It never sees the data: the truth is shown to :meth:`score` alone,
    after the guess was made.

    >>> import torch
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Coin(Attack[Knowledge]):
    ...     adversary = "outsider"
    ...     aim = "heads or tails"
    ...     measure = "share of right guesses"
    ...     kinds = ()
    ...
    ...     def guess(self, view, knowledge):
    ...         return torch.tensor(1)
    ...
    ...     def blind(self, knowledge):
    ...         return torch.tensor(0)
    ...
    ...     def score(self, guess, truth):
    ...         return float(guess == truth)
    ...
    ...     def in_words(self, success, read):
    ...         return f"the outsider is right {success:.0%} of the time"
    >>> Coin().score(Coin().guess(None, None), torch.tensor(1))
    1.0
    """

    adversary: ClassVar[Adversary]
    aim: ClassVar[str]
    measure: ClassVar[str]
    kinds: ClassVar[Kinds]
    """The messages of which it needs one kind at least; none means that W̄ is enough."""
    helpful: ClassVar[Kinds] = ()
    """Other messages that it makes use of."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return type(self).__name__

    def applies(self, view: View) -> bool:
        """Whether a view has what the attack needs."""
        return not self.kinds or bool(view.only(*self.kinds).kinds())

    def looks_at(self, view: View) -> View:
        """The view without messages that the attack does not read, which are then never made."""
        return view.only(*self.kinds, *self.helpful)

    @abstractmethod
    def guess(self, view: View, knowledge: K) -> Tensor:
        """What the adversary concludes from its messages."""

    @abstractmethod
    def blind(self, knowledge: K) -> Tensor:
        """The best guess of someone with the same side knowledge and no message."""

    @abstractmethod
    def score(self, guess: Tensor, truth: Tensor) -> float:
        """How right a guess is, from 0 to 1."""

    @abstractmethod
    def in_words(self, success: float, read: float) -> str:
        """A plain sentence on a mean score above guessing's; ``read`` is the share of scores of 0.95 or more."""
