"""What an adversary receives: messages, round by round, and nothing else.

A view is of one target: for the server, all that passes between it and one client; for a fellow client, all that it is
sent; for an outsider, the final model. Messages are made when they are asked for, so that a view of a thousand rounds
with Jacobians of megabytes need not be held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias, TypeVar

from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights

M = TypeVar("M", bound=Message)
Kinds: TypeAlias = tuple[type[Message], ...]


@dataclass(frozen=True, eq=False)
class Round:
    """One round as an adversary sees it.

    Args:
        weights: W̄, which everybody receives.
        messages: the others.
    """

    weights: Weights
    messages: tuple[Message, ...] = ()

    def find(self, kind: type[M]) -> M | None:
        """The message of a kind, if there is one."""
        return next((message for message in self.messages if isinstance(message, kind)), None)

    def only(self, kinds: Kinds) -> Round:
        """The round without messages of other kinds."""
        return replace(self, messages=tuple(message for message in self.messages if isinstance(message, kinds)))


Making: TypeAlias = Callable[[Kinds], Round]
"""Makes a round with its messages of some kinds; others need not be made."""


@dataclass(frozen=True, eq=False)
class View:
    """Rounds that are made when they are looked at, and what is public about the protocol.

    >>> import torch
    >>> from gfl_lightning.models.encoders.mlp import MLP
    >>> encoder = SizedEncoder(MLP(), num_features=4, num_classes=2)
    >>> final = Round(encoder.initial_weights(torch.Generator().manual_seed(0)))
    >>> [len(one.messages) for one in View.of(encoder, [final])]
    [0]

    Args:
        encoder: Ψ_h.
        rounds: how to get each of them, in order of time.
        own: Ã_kk of the target, which the server and the client itself know.
        lr: η.
        steps: I.
        received: the kinds of messages that reach the adversary.
    """

    encoder: SizedEncoder
    rounds: tuple[Making, ...]
    own: float = 1.0
    lr: float = 1.0
    steps: int = 1
    received: Kinds = (Message,)

    @classmethod
    def of(cls, encoder: SizedEncoder, rounds: Sequence[Round], own: float = 1.0, lr: float = 1.0) -> View:
        """The view of rounds that are at hand, of one local step each."""
        return cls(encoder, tuple((lambda kinds, one=one: one.only(kinds)) for one in rounds), own, lr)  # type: ignore[misc]

    def __iter__(self) -> Iterator[Round]:
        return (make(self.received) for make in self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)

    def only(self, *kinds: type[Message]) -> View:
        """The view of an adversary that gets messages of some kinds alone, such as one of two servers."""
        return replace(self, received=tuple(kind for kind in kinds if issubclass(kind, self.received)))

    def first(self, most: int) -> View:
        """The view of the first rounds; of one, it is that of a server that forgets each round after it."""
        return replace(self, rounds=self.rounds[:most])

    def spread(self, most: int) -> View:
        """The view of so many rounds at equal distances, or of all."""
        chosen = {round(i * (len(self) - 1) / max(1, most - 1)) for i in range(most)}
        return replace(self, rounds=tuple(self.rounds[place] for place in sorted(chosen) if self.rounds))

    def held(self) -> View:
        """The same view, each of its rounds made once: for several attacks on one target."""
        return replace(self, rounds=tuple(_once(make, self.received) for make in self.rounds))

    def kinds(self) -> set[type[Message]]:
        """Which kinds of messages there are, as far as the first rounds that have any show."""
        for one in self:
            if one.messages:
                return {type(message) for message in one.messages}
        return set()


def _once(make: Making, received: Kinds) -> Making:
    """The making of a round that makes all messages when it is first asked for some."""
    whole = cache(lambda: make(received))
    return lambda kinds: whole().only(kinds)
