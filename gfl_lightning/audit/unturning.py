"""Whether a secret rotation can be undone from the records that the server reads behind it."""

from __future__ import annotations

import torch

from gfl_lightning.attacks.rotation import by_components, by_known_records, by_moments, named_by_truth
from gfl_lightning.attacks.scores import READ, cosine, how_close
from gfl_lightning.audit.findings import Finding, verdict_of
from gfl_lightning.audit.intervals import better, interval
from gfl_lightning.audit.stage import Stage

MOST_COMPONENTS, MOST_RECORDS, TARGETS = 300, 4000, 100
PUBLIC = "a tenth of the clients' records"
GRANTED = "; of clients with several samples, each sample behind the rotation"


def undone(stage: Stage) -> list[Finding]:
    """Three ways to undo Q from Q x of all records: scored by cosine to x.

    ∇ĥ_j gives Q x away exactly where a client has one sample; where clients have several, what unmixing might give is
    granted.
    """
    graph, turned = stage.cast.graph, stage.seeing.federation.graph
    if stage.seeing.federation.estimator != "compensated":
        return []
    Z, X = turned.x, graph.x
    source = torch.Generator().manual_seed(0)
    public = stage.cast.public_rows
    seen = (graph.shared & ~torch.isin(graph.client, stage.cast.public)).nonzero().flatten()
    seen = seen[torch.randperm(len(seen), generator=source)][:MOST_RECORDS]
    every = torch.cat([seen, public])
    rank = min(MOST_COMPONENTS, len(every) - 1, Z.shape[1])
    few = min(rank, len(public) - 1)
    ways = {
        "independent components": (
            named_by_truth(by_components(Z[every], rank, source), X[every]),
            "which component is which feature",
        ),
        "known marginals": (by_moments(Z[every], X[public], few), f"{PUBLIC} is public"),
        "known records": (by_known_records(Z[every], Z[public], X[public]), f"{PUBLIC}, by name"),
    }
    more = GRANTED if int(graph.counts(graph.shared).max()) > 1 else ""
    targets = range(min(TARGETS, len(seen)))
    blind = [cosine(X[public].mean(0), X[seen[t]]) for t in targets]
    return [
        _finding(name, knows + more, [cosine(guess[t], X[seen[t]]) for t in targets], blind)
        for name, (guess, knows) in ways.items()
    ]


def _finding(name: str, knows: str, scores: list[float], blind: list[float]) -> Finding:
    success, beats = sum(scores) / len(scores), better(scores, blind)
    low, high = interval(scores)
    return Finding(
        "server",
        f"Unturned by {name}",
        "a record behind a secret rotation",
        knows,
        "cosine to the record",
        len(scores),
        success,
        low,
        high,
        sum(blind) / len(blind),
        sum(score >= READ for score in scores) / len(scores),
        beats,
        verdict_of(
            f"{name} give a record back {how_close(success)}", success, sum(blind) / len(blind), beats, len(scores)
        ),
    )
