"""Settings worth trying on a table, drawn at random from what has been of use."""

from __future__ import annotations

import random
from typing import Any

from gfl_lightning.graphs.client_graph import ClientGraph, Split

Options = dict[str, Any]
RATES = (0.03, 0.1, 0.3, 1.0)
DECAYS = (0.0, 0.0, 1e-3, 1e-2)
ALPHAS, POWERS = (0.1, 0.3, 0.6, 0.6, 0.9), (2, 4, 10)
HIDDEN: tuple[list[int], ...] = ([16], [64], [])
LEVELS = (0.5, 2.0, 8.0)


def candidates(graph: ClientGraph, number: int, seed: int = 0) -> list[Options]:
    """The configuration as it is, the same without neighbours, and others; options of the model by names with dots.

    >>> from gfl_lightning.graphs.datasets.sc import SC
    >>> candidates(SC(num_clients=20, num_features=5).graph, 3)[:2]
    [{}, {'aggregator': {'class_path': 'Identity'}}]
    """
    draw = random.Random(seed)
    several = int(graph.counts(graph.mask(Split.TRAIN)).max()) > 1
    found: list[Options] = [{}, {"aggregator": {"class_path": "Identity"}}]
    while len(found) < number:
        one = _drawn(draw, several)
        if one not in found:
            found.append(one)
    return found[:number]


def _drawn(draw: random.Random, several: bool) -> Options:
    aggregator = _aggregator(draw)
    hidden = draw.choice(HIDDEN)
    return {
        "encoder": {"class_path": "MLP", "init_args": {"hidden": hidden, "bias": draw.random() < 0.5}},
        "aggregator": aggregator,
        "weighting": draw.choice(("uniform", "samples")),
        "local.lr": draw.choice(RATES),
        "local.weight_decay": draw.choice(DECAYS),
        "personal": _personal(draw, gated=aggregator["class_path"] == "APPNP") if several else _part("Shared"),
    }


def _aggregator(draw: random.Random) -> Options:
    kind = draw.choice(("APPNP", "APPNP", "APPNP", "LearnablePolynomial", "Identity"))
    if kind == "Identity":
        return _part(kind)
    return _part(kind, alpha=draw.choice(ALPHAS), M=4 if kind == "LearnablePolynomial" else draw.choice(POWERS))


def _personal(draw: random.Random, gated: bool) -> Options:
    kind = draw.choice(("Shared", "OwnLevel", "OwnLevel", "OwnLevel", "OwnSlopes", *(["Gate"] if gated else [])))
    level = draw.choice(LEVELS)
    if kind == "OwnLevel":
        return _part(kind, strength=draw.choice((None, None, level)))
    if kind == "OwnSlopes":
        return _part(kind, level=level, slopes=draw.choice((5.0, 20.0, 80.0)))
    return _part(kind, strength=1.0, level=level) if kind == "Gate" else _part(kind)


def _part(kind: str, **options: Any) -> Options:
    return {"class_path": kind, "init_args": options} if options else {"class_path": kind}
