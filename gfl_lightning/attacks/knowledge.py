"""Side knowledge: what an adversary is granted beside its messages; guessing without messages has it too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfl_lightning.federated.protocol.messages import Message
from gfl_lightning.models.encoders.encoder import Weights


@dataclass(frozen=True, eq=False)
class Clients:
    """Clients of whom every shared record is known.

    >>> some = Clients(torch.eye(3), torch.tensor([0, 1, 1]))
    >>> len(some), some.means(some.x).tolist()
    (2, [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])

    Args:
        x: their records ``[n, d]``.
        owner: whose each is, from 0 on ``[n]``.
    """

    x: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    owner: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    @classmethod
    def of(cls, records: Sequence[Tensor]) -> Clients:
        """From the records of each ``[n_j, d]``."""
        counts = torch.tensor([len(one) for one in records])
        return cls(torch.cat(list(records)), torch.repeat_interleave(torch.arange(len(records)), counts))

    def __len__(self) -> int:
        return int(self.owner.max()) + 1 if len(self.owner) else 0

    def means(self, numbers: Tensor) -> Tensor:
        """Of numbers of each record those of each client, who sends the mean over its records ``[n, f] → [q, f]``."""
        total = numbers.new_zeros(len(self), numbers.shape[1]).index_add(0, self.owner, numbers)
        return total / torch.bincount(self.owner)[:, None].to(numbers)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """A public sample of records like the target's, and what is known of the target's place.

    Args:
        public_x: records of clients who published them ``[P, d]``.
        public_y: their labels ``[P]``.
        num_classes: c.
        samples: how many records the target has; numbers of samples are public.
        seed: of anything random in the attack.
        std: standard deviation of the noise on each kind of message, which is public.
        bound: on the norm of each kind of message, which is public too.
        disguise: standard deviation of what a record like the target's was randomised by, before anything was sent.
    """

    public_x: Tensor
    public_y: Tensor
    num_classes: int
    samples: int = 1
    seed: int = 0
    std: Mapping[type[Message], float] = field(default_factory=dict)
    bound: Mapping[type[Message], float] = field(default_factory=dict)
    disguise: float = 0.0

    @property
    def as_sent(self) -> Tensor:
        """The public records, randomised as the target's was ``[P, d]``."""
        if not self.disguise:
            return self.public_x
        generator, x = torch.Generator().manual_seed(self.seed), self.public_x
        return x + self.disguise * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    @property
    def mean(self) -> Tensor:
        """The mean public record ``[d]``."""
        return self.public_x.mean(0)

    def draw(self, count: int) -> Tensor:
        """Different guesses ``[count, d]``: public records in any order, then normal ones of their mean and spread."""
        generator, x = torch.Generator().manual_seed(self.seed), self.public_x
        first = x[torch.randperm(len(x), generator=generator)[:count]]
        drawn = torch.randn(count - len(first), x.shape[1], generator=generator, dtype=x.dtype)
        return torch.cat([first, self.mean + x.std(0, correction=0) * drawn])

    def bounded(self, numbers: Tensor, kind: type[Message]) -> Tensor:
        """What clients make of such numbers before they send them in a kind of message ``[P, f]``."""
        bound = self.bound.get(kind, math.inf)
        norm = numbers.norm(dim=1, keepdim=True).clamp_min(torch.finfo(numbers.dtype).tiny)
        return numbers * (bound / norm).clamp_max(1) if bound < math.inf else numbers

    def shares(self) -> Tensor:
        """How frequent each class is among public records ``[c]``."""
        return torch.bincount(self.public_y, minlength=self.num_classes).to(self.public_x) / len(self.public_y)


@dataclass(frozen=True, eq=False)
class OwnPlace(Knowledge):
    """What a fellow client knows besides: its own records, and possibly the graph.

    Args:
        own_x: its records ``[n, d]``.
        own_label: its label, or the most frequent one of its records.
        neighbours: Ã_kj of its direct neighbours; nothing where it does not know the graph.
        candidates: clients it asks about, whose names and records it knows.
        named: clients whose names, records and Ã_kj it knows, direct neighbours and others.
        weights: their Ã_kj ``[p]``.
    """

    own_x: Tensor = field(default_factory=lambda: torch.empty(0))
    own_label: int = 0
    neighbours: Tensor = field(default_factory=lambda: torch.empty(0))
    candidates: Clients = field(default_factory=Clients)
    named: Clients = field(default_factory=Clients)
    weights: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(frozen=True, eq=False)
class TwoWorlds(Knowledge):
    """The two data sets that the target may hold, and all that its uploads would be.

    Args:
        worlds: the target's records in either world, differing in one ``[n, d]`` each.
        uploads: what a client with given records uploads at given weights, before noise: the program is public.
        landmarks: where the target hides behind a secret rotation: records that are known, and as the server reads
            them ``[p, d]`` each.
    """

    worlds: tuple[Tensor, Tensor] = field(default_factory=lambda: (torch.empty(0), torch.empty(0)))
    uploads: Callable[[Weights, Tensor], tuple[Message, ...]] = field(default=lambda _w, _x: ())
    landmarks: tuple[Tensor, Tensor] = field(default_factory=lambda: (torch.empty(0), torch.empty(0)))


@dataclass(frozen=True, eq=False)
class Shadows(Knowledge):
    """Federations that the adversary trained itself on data like the target's, with and without a record.

    Args:
        record: the record asked about ``[d]``.
        label: its label.
        models: final weights of the shadow federations.
        member: whether the record was in each.
    """

    record: Tensor = field(default_factory=lambda: torch.empty(0))
    label: int = 0
    models: tuple[Weights, ...] = ()
    member: tuple[bool, ...] = ()
