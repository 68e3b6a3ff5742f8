"""Whether a secret rotation can be undone from the records that the server reads behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfl_lightning.attacks.rotation import by_components, by_known_records, by_moments, named_by_truth
from gfl_lightning.attacks.scores import READ, cosine
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.intervals import better, interval
from gfl_lightning.audit.seeing import Seeing

MOST_COMPONENTS = 300


def undone(cast: Cast, seeing: Seeing, scale: Scale) -> list[Finding]:
    """Three ways to undo Q from Q x_j of all clients, which ∇ĥ_j gives away exactly: scored by cosine to x_j."""
    graph, turned = cast.graph, seeing.federation.graph
    if int(graph.counts(graph.shared).max()) > 1 or seeing.federation.estimator != "compensated":
        return []
    Z, X = turned.x, graph.x
    source = torch.Generator().manual_seed(0)
    public, rank = cast.public_rows, min(MOST_COMPONENTS, len(Z) - 1, Z.shape[1])
    few = min(rank, len(public) - 1)
    ways = {
        "independent components": (named_by_truth(by_components(Z, rank, source), X), "which component is which word"),
        "known marginals": (by_moments(Z, X[public], few), "a tenth of the clients' records is public"),
        "known records": (by_known_records(Z, Z[public], X[public]), "a tenth of the clients' records, by name"),
    }
    targets = torch.tensor(cast.victims(max(scale.victims, 100)))
    return [_finding(name, knows, guess[targets], X, targets, public) for name, (guess, knows) in ways.items()]


def _finding(name: str, knows: str, guess: Tensor, X: Tensor, targets: Tensor, public: Tensor) -> Finding:
    scores = [cosine(one, X[j]) for one, j in zip(guess, targets.tolist(), strict=True)]
    mean = X[public].mean(0)
    blind = [cosine(mean, X[j]) for j in targets.tolist()]
    success, read = sum(scores) / len(scores), sum(score >= READ for score in scores) / len(scores)
    beats = better(scores, blind)
    parts: dict[str, Any] = {"low": interval(scores)[0], "high": interval(scores)[1]}
    return Finding(
        "server",
        f"Unturned by {name}",
        "the record of a client with one sample behind a secret rotation",
        knows,
        "cosine to the record",
        len(scores),
        success,
        parts["low"],
        parts["high"],
        sum(blind) / len(blind),
        read,
        beats,
        f"{name} undo the rotation to a cosine of {success:.2f}" if beats else "no better than guessing",
    )
