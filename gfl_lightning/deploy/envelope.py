"""All that passes in one direction of one phase between the server and one site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gfl_lightning.federated.protocol.messages import Message

SERVER = "server"
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, eq=False)
class Envelope:
    """Messages and notes under the name of their phase, round and sender.

    >>> Envelope("share", 3, "north", notes={"skipped": []}).of(Message)
    []

    Args:
        phase: what they are for.
        round: t, as the schedule counts; 0 before training.
        sender: name of a site, or ``server``.
        messages: records of tensors.
        notes: plain values: text, numbers, lists, dictionaries.
    """

    phase: str
    round: int
    sender: str
    messages: tuple[Message, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def of(self, kind: type[M]) -> list[M]:
        """Its messages of a kind."""
        return [message for message in self.messages if isinstance(message, kind)]


class Outgoing(NamedTuple):
    """What goes to one site: messages, and notes beside them."""

    messages: Sequence[Message] = ()
    notes: Mapping[str, Any] = {}
