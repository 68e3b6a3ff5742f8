"""One split of the data: every method is trained and tested on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gfl_lightning.baselines.pooled import POOLED
from gfl_lightning.engine.newcomers import Newcomers
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.practice.methods import Method, mix_of
from gfl_lightning.practice.setting import Setting
from gfl_lightning.reports.scores import baseline, scores

MIXED = ("mixed", "each client's mix: graph, FedAvg, trained on alone")
BASELINE = ("baseline", "baseline: nothing but the labels")
Scores = dict[str, float]


@dataclass
class Found:
    """What a method reached, split by split.

    Args:
        key: its short name.
        title: its name in tables.
        in_one_place: whether it needs all rows in one place.
        known: scores on the test samples of clients that took part in training.
        new: on those of clients that join later.
        sizes: scores by number of a client's training samples, for each of the groups.
        losses: mean test loss of each client ``[N]``.
        without: scores on the test samples without those of some clients, for each group that is left out.
    """

    key: str
    title: str
    in_one_place: bool
    known: list[Scores] = field(default_factory=list)
    new: list[Scores] = field(default_factory=list)
    sizes: list[list[Scores]] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    without: list[list[Scores]] = field(default_factory=list)

    def add(self, graph: ClientGraph, prediction: Tensor, groups: list[Tensor], left_out: list[Tensor]) -> None:
        """Test what was predicted of all samples."""
        test = graph.mask(Split.TEST)
        self.known.append(scores(graph, prediction, test))
        self.sizes.append([scores(graph, prediction, test & group[graph.client]) for group in groups])
        self.losses.append(client_losses(graph, prediction))
        self.without.append([scores(graph, prediction, test & ~some[graph.client]) for some in left_out])


def client_losses(graph: ClientGraph, prediction: Tensor) -> Tensor:
    """Log loss, or absolute error of numbers, of each client's test samples in the mean ``[N]``; nan without any."""
    rows = graph.mask(Split.TEST)
    y, found, owner = graph.y[rows].cpu(), prediction[rows].double(), graph.client[rows].cpu()
    lost = (found[:, 0] - y).abs() if graph.loss.of_numbers else -found[torch.arange(len(y)), y].clamp_min(1e-15).log()
    total = torch.bincount(owner, lost, minlength=graph.num_clients)
    return total / torch.bincount(owner, minlength=graph.num_clients)


def size_groups(graph: ClientGraph, most: int = 3) -> tuple[list[str], list[Tensor]]:
    """The clients in up to three groups of about equal number, by their training samples, with names.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> size_groups(SC(num_clients=20, num_features=5).graph)[0]
    ['10 training rows']
    """
    counts = graph.counts(graph.mask(Split.TRAIN)).cpu()
    order = counts.sort().values
    cuts = sorted({int(order[len(order) * part // most]) for part in range(1, most)} - {int(order[0])})
    bounds = list(zip([int(order[0]), *cuts], [*(cut - 1 for cut in cuts), int(order[-1])], strict=True))
    names = [f"{low} training rows" if low == high else f"{low} to {high} training rows" for low, high in bounds]
    return names, [(counts >= low) & (counts <= high) for low, high in bounds]


def jackknife_groups(graph: ClientGraph, most: int = 20) -> list[Tensor]:
    """Clients with test samples in up to 20 groups of about equal number, at random, each as a mask ``[N]``.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> graph = SC(num_clients=50, num_features=5).graph
    >>> sorted({int(some.sum()) for some in jackknife_groups(graph)})
    [2, 3]
    """
    tested = graph.counts(graph.mask(Split.TEST)).cpu().nonzero().flatten()
    order = tested[torch.randperm(len(tested), generator=torch.Generator().manual_seed(0))]
    found = []
    for part in order.tensor_split(max(1, min(most, len(order)))):
        mask = torch.zeros(graph.num_clients, dtype=torch.bool)
        mask[part] = True
        found.append(mask.to(graph.client.device))
    return found


def start(methods: list[Method]) -> list[Found]:
    """A place for what each method will reach: those given, their mix, the pooled ones, the baseline."""
    ours = [Found(method.key, method.title, in_one_place=False) for method in methods]
    theirs = [Found(method.key, method.title, in_one_place=True) for method in POOLED]
    return [*ours, Found(*MIXED, in_one_place=False), *theirs, Found(*BASELINE, in_one_place=False)]


def trial(
    setting: Setting,
    graph: ClientGraph,
    seed: int,
    methods: list[Method],
    rates: dict[str, float],
    found: list[Found],
    split_is_given: bool = False,
) -> None:
    """Train and test every method on one split, also with some clients taken out who join afterwards.

    Where the split is given, and so the same each time, also without the test samples of some clients.
    """
    by_key = {one.key: one for one in found}
    left_out = jackknife_groups(graph) if split_is_given else []
    _, groups = size_groups(graph)
    newcomers = Newcomers.of(graph, seed)
    runs = {}
    for method in methods:
        run = runs[method.key] = method.run(setting, method.graph(graph, seed), seed, rates[method.key])
        by_key[method.key].add(graph, run.prediction(), groups, left_out)
        predicted = None if newcomers is None else method.of_newcomers(setting, newcomers, seed, rates[method.key])
        if newcomers is not None and predicted is not None:
            by_key[method.key].new.append(scores(newcomers.whole, predicted, newcomers.rows))
    mix = mix_of(runs["graph"], runs["fedavg"].prediction())
    by_key[MIXED[0]].add(graph, mix, groups, left_out)
    by_key[MIXED[0]].new += by_key["graph"].new[-1:] if newcomers is not None else []  # without a label, no mix
    for pooled in POOLED:
        by_key[pooled.key].add(graph, pooled.prediction(graph), groups, left_out)
        if newcomers is not None:
            by_key[pooled.key].new.append(scores(newcomers.whole, pooled.of_newcomers(newcomers), newcomers.rows))
    by_key[BASELINE[0]].add(graph, baseline(graph), groups, left_out)
    if newcomers is not None:
        before = baseline(newcomers.without)[:1].expand(graph.num_samples, -1)
        by_key[BASELINE[0]].new.append(scores(newcomers.whole, before, newcomers.rows))
