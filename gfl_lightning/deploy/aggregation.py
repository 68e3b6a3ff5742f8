"""What turns uploads into aggregates and models into their average: the contract, and the server that sees them all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gfl_lightning.deploy.contents import Kinds
from gfl_lightning.deploy.envelope import Envelope, Outgoing
from gfl_lightning.deploy.evaluation import Evaluation
from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.federated.protocol.server_party import ServerParty

Ask = Callable[[str, int, Mapping[str, Outgoing]], tuple[dict[str, Envelope], dict[str, str]]]
"""ask(phase, round, what goes to each site): the replies that were good, and why each other site has none."""


class Averaged(NamedTuple):
    """How many models are in an average, how many were left out as they are not finite, and metrics that came along."""

    trained: int
    skipped: int
    evaluations: Sequence[Evaluation] = ()


class Aggregation(ABC):
    """Step 2 and the server's half of step 3, as a driver asks for them.

    The driver makes the rounds; an aggregation holds what sites have sent and may ask them for more.

    >>> PlainAggregation.__mro__[1].__name__
    'Aggregation'
    """

    server: ServerParty
    """Ã, W̄ and its round, the votes and the server's optimizer."""

    def prepare(self, t: int, ask: Ask, sites: Sequence[str]) -> None:  # noqa: B027  # most need none
        """Called before the first round that is made, t, also after a checkpoint was taken up."""

    @abstractmethod
    def shared(self, t: int, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask) -> None:
        """Take the representations and Jacobians of a round by site; sites in ``missing`` sent none."""

    @abstractmethod
    def aggregates(self, t: int, site: str, clients: Sequence[int], training: Sequence[int]) -> list[Message]:
        """What a site gets: C_k of its clients, and ∇C_k of those that train."""

    def settled(self, t: int, uploads: Mapping[str, Sequence[Message]], ask: Ask) -> bool:
        """Open what sites open only once; whether a checkpoint must keep that before the round goes on."""
        return False

    @abstractmethod
    def averaged(
        self, t: int, lr: float, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask
    ) -> Averaged:
        """Make the next W̄ of the models of a round by site."""

    def evaluations(self, t: int, replies: Mapping[str, Envelope], ask: Ask) -> Sequence[Evaluation]:
        """How the model scores at the sites, where no models come with it."""
        return [one for reply in replies.values() for one in reply.of(Evaluation)]

    def released(self) -> None:  # noqa: B027  # most keep what stands
        """Called as soon as the aggregates of a round have been sent."""

    def kinds(self, phase: str) -> Kinds:
        """Kinds of messages that it takes from sites in a phase beside the usual ones."""
        return {}

    def most_bytes(self, phase: str) -> int:
        """How large an answer may be beyond the messages of the protocol."""
        return 0

    def ages(self, t: int) -> list[int]:
        """Rounds since the upload of each client that is in use; −1 where there is none."""
        return [int(age) for age in self.server.age(t)]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain containers of tensors, numbers and text."""
        return self.server.state()

    def load(self, state: dict[str, Any]) -> None:
        """Take up what :meth:`state` returned."""
        self.server.load(state)


@dataclass(eq=False)
class PlainAggregation(Aggregation):
    """One server that keeps every upload until the client sends another.

    Args:
        server: does the sums.
    """

    server: ServerParty

    def shared(self, t: int, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask) -> None:
        """Keep the uploads; those of missing sites stand."""
        for messages in uploads.values():
            for message in messages:
                self.server.receive(message)

    def aggregates(self, t: int, site: str, clients: Sequence[int], training: Sequence[int]) -> list[Message]:
        """Sums over all uploads that stand."""
        return [*self.server.representations(clients), *self.server.jacobians(training)]

    def averaged(
        self, t: int, lr: float, uploads: Mapping[str, Sequence[Message]], missing: Collection[str], ask: Ask
    ) -> Averaged:
        """Average over the clients whose models came."""
        models = [message for messages in uploads.values() for message in messages]
        skipped = self.server.average(models, lr)
        return Averaged(len(models) - skipped, skipped)
