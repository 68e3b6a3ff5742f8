"""Who takes part and which samples are used, as the engine draws them, where nobody holds all the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.privacy.noise_key import NoiseKey


def counted(clients: Sequence[int], counts: Sequence[int], most: int) -> TrainingSet:
    """Training clients of whom only the numbers of samples are known."""
    K = len(clients)
    present = torch.arange(most) < torch.tensor(counts)[:, None]
    return TrainingSet(
        clients=torch.tensor(clients, dtype=torch.int64),
        counts=torch.tensor(counts, dtype=torch.int64),
        sample=torch.zeros(K, most, dtype=torch.int64),
        present=present,
        target=torch.zeros(K, most, 1),
        weight=torch.ones(K, most),
        is_weighted=False,
        loss=CrossEntropy(),
    )


def attendance(training: Mapping[int, int], num_clients: int, participation: Participation, seed: int) -> Schedule:
    """Who trains and shares in each round, from the training samples of each client that has any."""
    clients = sorted(training)
    trained = counted(clients, [training[k] for k in clients], max(training.values()))
    return Schedule(trained, num_clients, participation, LocalTraining(), seed)


@dataclass(frozen=True, eq=False)
class OwnBatches:
    """The batches of a site's clients, the ones that the engine draws for them among all.

    >>> OwnBatches({3: 0}, {3: 4}, 2, 4, LocalTraining(steps=2, batch_size=2), seed=0).of([3], 0)
    {3: [tensor([1, 0]), tensor([3, 2])]}

    Args:
        place: of each of the site's training clients among all that train.
        counts: their training samples.
        clients: how many train in all.
        most: the most training samples that one of them has.
        local: steps and batch size.
        seed: of the draws.
        poisson: whether batches are Poisson samples, as DP-SGD wants them.
        key: of those samples, which nobody else may know.
    """

    place: Mapping[int, int]
    counts: Mapping[int, int]
    clients: int
    most: int
    local: LocalTraining
    seed: int
    poisson: bool = False
    key: NoiseKey = field(default_factory=NoiseKey.fresh)

    def of(self, clients: Sequence[int], t: int) -> dict[int, list[Tensor]]:
        """Indices of some clients' own training samples for each local step of round t."""
        size = self.local.batch_size
        if size is None or size >= self.most or not clients:
            return {k: [torch.arange(self.counts[k])] * self.local.steps for k in clients}
        drawn = self._schedule.batches(t)
        assert drawn.place is not None
        steps = list(zip(drawn.place, drawn.weight, strict=True))
        return {k: [p[self.place[k]][w[self.place[k]] > 0] for p, w in steps] for k in clients}

    @cached_property
    def _schedule(self) -> Schedule:
        """All training clients; those of other sites stand in with as many samples as the largest of ours."""
        counts = [max(self.counts.values())] * self.clients
        for k, place in self.place.items():
            counts[place] = self.counts[k]
        training = counted(range(self.clients), counts, self.most)
        return Schedule(training, self.clients, Participation(), self.local, self.seed, self.poisson, self.key)
