"""The tables of the paper's studies, ours beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterable

from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.markdown import number, plus_minus, table
from gfl_lightning.studies.outcome import Outcome, published
from gfl_lightning.studies.published import COLUMNS, CONNECTIVITY_LAMBDA_MAX, NOISE_LEVELS
from gfl_lightning.studies.statistics import estimate


def comparison(outcome: Outcome, study: str, rows: Iterable[Row], first: str = "method") -> str:
    """One line per row: ours, published, and whether they agree."""
    lines = []
    for row in rows:
        printed, found = published(study, row), outcome.accuracy(row)
        theirs = "—" if printed is None else f"{printed.mean:.1f} ± {printed.half_width:.2f}"
        note = f"[^{printed.erratum}]" if printed is not None and printed.erratum is not None else ""
        lines.append([row.label, row.column, plus_minus(found), theirs + note, outcome.agreement(study, row)])
    return table([first, "data", "measured", "published", "agree"], lines)


def dnc(outcome: Outcome) -> str:
    """One graph as in the paper, and several."""
    rows = outcome.studies["dnc"]
    single = [row for row in rows if not row.column.startswith("graph")]
    graphs = [row for row in rows if row.column.startswith("graph")]
    order = sorted(single, key=lambda row: COLUMNS.index(row.column))
    parts = [
        "The synthetic graph is one draw (graph seed 0), as in the paper; features are redrawn for each repetition.",
        comparison(outcome, "dnc", order),
        "The graph is random and DNC depends on it. The same set-up over several graphs:",
    ]
    labels = list(dict.fromkeys(row.label for row in graphs))
    by_graph = {(row.label, row.column): row for row in graphs}
    lines = []
    for column in dict.fromkeys(row.column for row in graphs):
        lambda_max = outcome.values(by_graph[labels[0], column], "lambda_max")
        lines.append(
            [
                column,
                number(lambda_max[0]) if lambda_max else "∞",
                *(plus_minus(outcome.accuracy(by_graph[label, column])) for label in labels),
            ]
        )
    means = [[outcome.accuracy(row) for row in graphs if row.label == label] for label in labels]
    over = [estimate([one.mean for one in some if one is not None]) for some in means]
    lines.append(["mean over graphs", "", *(f"**{plus_minus(one)}**" for one in over)])
    return "\n\n".join([*parts, table(["graph", "λ_max(B_N L†) of the training clients", *labels], lines)])


def snc(outcome: Outcome) -> str:
    """Per sample and per client."""
    rows = outcome.studies["snc"]
    text = "Per sample; per client a vote over its 40 samples (the mean of their logits) decides:"
    lines = [[row.label, plus_minus(outcome.accuracy(row, "client_accuracy"))] for row in rows]
    return "\n\n".join([comparison(outcome, "snc", rows), text, table(["method", "clients right"], lines)])


def sc(outcome: Outcome) -> str:
    """With FedMLP and MLPs."""
    return comparison(outcome, "sc", outcome.studies["sc"])


def dp(outcome: Outcome) -> str:
    """Noise on ĥ, and on ĥ and ∇ĥ."""
    rows = {(row.label, row.column): row for row in outcome.studies["dp"]}
    lines = []
    for label in dict.fromkeys(label for label, _ in rows):
        cells = []
        for level in NOISE_LEVELS:
            row = rows.get((label, f"SD {level:g}"))
            if row is None:
                cells.append("as hn")
                continue
            found, printed = outcome.accuracy(row), published("dp", row)
            assert printed is not None
            agrees = {"yes": "✓", "no": "✗"}.get(outcome.agreement("dp", row), "")
            cells.append(f"**{plus_minus(found)}** (published {printed.mean:.1f} ± {printed.half_width:.2f}) {agrees}")
        lines.append([label, *cells])
    text = (
        "hn: Gaussian noise on every entry of ĥ; hn_gn: on every entry of ĥ and of ∇ĥ. Evaluation uses the noisy "
        "representations too. This is noise without bounds, as in the paper: it guarantees nothing."
    )
    return "\n\n".join([text, table(["", *(f"SD {level:g}" for level in NOISE_LEVELS)], lines)])


def connectivity(outcome: Outcome) -> str:
    """Four graphs and their λ_max."""
    lines = []
    for row in outcome.studies["connectivity"]:
        degree = int(row.column.removeprefix("degree "))
        lines.append(
            [
                str(degree),
                number(outcome.values(row, "lambda_max")[0]),
                number(CONNECTIVITY_LAMBDA_MAX[degree]),
                plus_minus(outcome.accuracy(row)),
            ]
        )
    return table(["degree d", "λ_max(B_N L†), ours", "λ_max, the paper's graph", "accuracy"], lines)


def necessity(outcome: Outcome) -> str:
    """With and without the graph."""
    lines = [[row.label, plus_minus(outcome.accuracy(row))] for row in outcome.studies["necessity"]]
    return table(["method", "accuracy"], lines)
