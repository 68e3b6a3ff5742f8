"""The clients that train, and the samples they train on, in ragged rows and in batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.ragged import Ragged
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.loss import Loss
from gfl_lightning.privacy.noise_source import NoiseSource


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """K training clients; client k owns n_k training samples, n is the largest n_k.

    Args:
        clients: their numbers ``[K]``, ascending.
        counts: n_k ``[K]``.
        sample: rows of the sample table ``[K, n]``; places past n_k repeat a sample of the client.
        present: which places hold a sample ``[K, n]``.
        target: what the loss keeps of their labels ``[K, n, c]``: 0/1 vectors of classes.
        weight: weight of their losses ``[K, n]``.
        is_weighted: whether one of these is not 1.
        loss: what is lost on a label.
    """

    clients: Tensor
    counts: Tensor
    sample: Tensor
    present: Tensor
    target: Tensor
    weight: Tensor
    is_weighted: bool
    loss: Loss

    @classmethod
    def of(cls, graph: ClientGraph, every_class: bool = True) -> TrainingSet:
        """The training samples of a graph, by client; refused where a class has none, unless that may not be told."""
        rows = graph.mask(Split.TRAIN).nonzero().flatten()
        require(len(rows) > 0, "graph", "have at least one training sample", graph)
        require(
            not every_class or not len(graph.untrained_classes),
            "graph",
            "have a training sample of every class",
            f"none of class {graph.untrained_classes.tolist()}",
        )
        ragged = Ragged.of(graph.client[rows])
        sample = rows[ragged.place]
        target = graph.loss.targets(graph.y[sample], graph.num_classes, graph.x.dtype)
        columns = (ragged.clients, ragged.counts, sample, ragged.present, target, graph.weight[sample])
        return cls(*columns, graph.is_weighted, graph.loss)

    def take(self, chosen: Tensor) -> TrainingSet:
        """The training set of some of the clients, given by their places in ``clients``."""
        columns = ("clients", "counts", "sample", "present", "target", "weight")
        return replace(self, **{name: getattr(self, name)[chosen] for name in columns})

    def by_size(self) -> list[TrainingSet]:
        """Those of clients with about as many samples each, at most half of them padding."""
        level = torch.log2(self.counts.double()).ceil()
        return [self.take(level == each)._trimmed() for each in level.unique()]

    def _trimmed(self) -> TrainingSet:
        """Without places that no client needs."""
        n = int(self.counts.max())
        return replace(self, **{name: getattr(self, name)[:, :n] for name in ("sample", "present", "target", "weight")})

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True, eq=False)
class Batches:
    """The samples of each local step: ``place [I, K, b]`` among a client's own, with ``weight [I, K, b]``.

    The weights of a batch sum to 1, unless ``weighted`` multiplies each by that of its sample's loss; places beyond a
    short batch have weight 0. ``place`` is ``None`` where every step uses all samples, and then ``weight`` is
    ``[1, K, n]``.
    """

    place: Tensor | None
    weight: Tensor
    weighted: bool = False

    def take(self, chosen: Tensor) -> Batches:
        """The batches of some of the clients."""
        place = None if self.place is None else self.place[:, chosen]
        return Batches(place, self.weight[:, chosen], self.weighted)

    def step_weight(self, step: int, n: int) -> Tensor | None:
        """Weight of each of a client's n samples in a local step, ``[K, n]``; ``None`` where it is 1 as n = 1."""
        if self.place is None:
            return self.weight[0] if n > 1 or self.weighted else None
        whole = self.weight.new_zeros(*self.weight.shape[1:-1], n)
        return whole.scatter_add_(1, self.place[step], self.weight[step])


def draw_batches(
    training: TrainingSet, batch_size: int | None, steps: int, first_step: int, seed: int, dtype: torch.dtype
) -> Batches:
    """Batches of local steps ``first_step … first_step + steps − 1`` of the whole run.

    A client passes through its samples in a random order, ⌈n_k / b⌉ batches a pass, the last one possibly short;
    each pass has an order of its own. Passes go on from round to round. A batch size of at least n_k, or
    ``None``, means all samples. A step minimises the mean over its batch of the weighted losses.
    """
    drawn = _draw(training, batch_size, steps, first_step, seed, dtype)
    if not training.is_weighted:
        return drawn
    own = training.weight.to(dtype).expand(len(drawn.weight), -1, -1)
    weight = drawn.weight * (own if drawn.place is None else own.gather(2, drawn.place))
    return Batches(drawn.place, weight, weighted=True)


def _draw(
    training: TrainingSet, batch_size: int | None, steps: int, first_step: int, seed: int, dtype: torch.dtype
) -> Batches:
    """The same without the weights of samples' losses."""
    n = training.sample.shape[1]
    if batch_size is None or batch_size >= n:
        return Batches(None, (training.present.to(dtype) / training.counts[:, None])[None])
    batches_per_pass = -(-training.counts // batch_size)
    step = torch.arange(first_step, first_step + steps, device=training.counts.device)[:, None]
    passes, which = torch.unique(step // batches_per_pass, return_inverse=True)
    orders = torch.stack([_pass_order(training, seed, number) for number in passes.tolist()])
    own = orders[which, torch.arange(len(training), device=which.device)]
    offset = torch.arange(batch_size, device=which.device)
    position = (step % batches_per_pass * batch_size)[..., None] + offset
    inside = position < training.counts[:, None]
    weight = inside.to(dtype) / inside.sum(-1, keepdim=True)
    return Batches(own.gather(2, torch.where(inside, position, 0)), weight)


def poisson_batches(
    training: TrainingSet, batch_size: int | None, steps: int, source: NoiseSource, dtype: torch.dtype
) -> Batches:
    """Batches that hold each of a client's samples with probability b/n_k, all draws independent, for one round.

    Their weights are 1/b each, so that they sum to 1 only on average: DP-SGD must not reveal how large a batch is.
    Weights of losses are not among them: they belong to the gradients that are bounded.
    """
    n = training.sample.shape[1]
    if batch_size is None or batch_size >= n:
        return _draw(training, None, steps, 0, 0, dtype)
    expected = training.counts.clamp_max(batch_size).to(dtype)
    chance = source.uniform((steps, *training.sample.shape)).to(expected.device)
    drawn = (chance <= (expected.double() / training.counts)[:, None]) & training.present
    place = torch.arange(n, device=drawn.device).expand(drawn.shape)
    return Batches(place, drawn.to(dtype) / expected[:, None])


def _pass_order(training: TrainingSet, seed: int, number: int) -> Tensor:
    """A random order of each client's own places ``[K, n]``, the absent ones last."""
    key = torch.rand(training.sample.shape, generator=generator(seed, Stream.BATCHES, number))
    return key.to(training.present.device).masked_fill(~training.present, torch.inf).argsort(1)
