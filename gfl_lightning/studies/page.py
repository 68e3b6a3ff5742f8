"""The results as a Markdown page: tables with the published numbers beside ours, figures, errata as footnotes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.fingerprint import versions
from gfl_lightning.studies.outcome import Outcome, published
from gfl_lightning.studies.published import COLUMNS, CONNECTIVITY_LAMBDA_MAX, ERRATA, NOISE_LEVELS
from gfl_lightning.studies.statistics import Estimate, estimate

IMAGES = "images/results"
QUICK = "**Quick run: small data, few updates and repetitions. It shows that everything works; no number counts.**"
TITLES = {
    "dnc": "Deterministic node classification",
    "snc": "Stochastic node classification",
    "sc": "Supervised classification",
    "dp": "Noise on what clients upload (subCora)",
    "connectivity": "Accuracy against connectivity (figure 2a)",
    "necessity": "What the graph adds (figure 2b)",
    "curves": "Loss against updates (figure 3)",
    "cora": "All of Cora (ours)",
    "staleness": "What stale representations cost (ours)",
    "theory": "The convergence bound, measured (ours)",
    "privacy": "Accuracy against ε (ours)",
}


def page(outcome: Outcome, figures: dict[str, list[tuple[str, str]]]) -> str:
    """The page; ``figures`` are the names and captions of the pictures of each study."""
    parts = ["# Results, measured beside published", _head(outcome)]
    if outcome.summary:
        parts += ["## Summary", _summary(outcome), *_pictures("summary", figures)]
    tables = {
        "dnc": _dnc,
        "snc": _snc,
        "sc": _sc,
        "dp": _dp,
        "connectivity": _connectivity,
        "necessity": _necessity,
        "cora": _cora,
        "staleness": _staleness,
        "theory": _theory,
        "privacy": _privacy,
    }
    for study in outcome.studies:
        if study == "summary":
            continue
        parts.append(f"## {TITLES[study]}")
        if outcome.quick:
            parts.append(QUICK)
        if study in tables:
            parts.append(tables[study](outcome))
        parts += _pictures(study, figures)
    disagreeing = _disagreements(outcome)
    if disagreeing:
        parts += ["## Cells that do not agree with the published ones", disagreeing]
    parts += ["## Errata of the paper", *(f"[^{number}]: {text}" for number, text in ERRATA.items())]
    return "\n\n".join(parts) + "\n"


def _head(outcome: Outcome) -> str:
    libraries = ", ".join(f"{name} {number}" for name, number in versions().items())
    seconds = sum(record["seconds"] for record in outcome.records.values())
    lines = [
        f"Made by `{outcome.command}`: {len(outcome.records)} trainings, {seconds / 60:.1f} minutes of one core, "
        f"with {libraries}. Every repetition is in `results.json`.",
        "Test accuracy in per cent, mean ± 95 % confidence interval (Student's t) over repetitions, of the model with "
        "the lowest validation loss over the rounds. Published numbers are means over 20 repetitions. Two cells agree "
        "if their intervals overlap. Set-ups are the paper's with its errata[^1][^2][^3][^4][^5][^7][^8]; nothing is "
        "tuned towards a published number.",
        *outcome.notes,
    ]
    if outcome.quick:
        lines.insert(0, QUICK)
    return "\n\n".join(lines)


def _summary(outcome: Outcome) -> str:
    rows = {(row.label, row.column): row for row in outcome.summary}
    labels = list(dict.fromkeys(row.label for row in outcome.summary))
    columns = [column for column in COLUMNS if any(key[1] == column for key in rows)]

    def cell(label: str, column: str) -> str:
        row = rows.get((label, column))
        if row is None:
            return "—"
        printed, found = published("summary", row), outcome.accuracy(row)
        assert printed is not None
        mark = {"yes": "✓", "no": "✗", "misprint": f"[^{printed.erratum}]", "—": ""}[outcome.agreement("summary", row)]
        return f"**{_pm(found)}** (published {printed.mean:.1f} ± {printed.half_width:.2f}) {mark}"

    lines = [[label, *(cell(label, column) for column in columns)] for label in labels]
    return _table(["", *columns], lines) + "\n\n✓ intervals overlap, ✗ they do not."


def _comparison(outcome: Outcome, study: str, rows: Iterable[Row], first: str = "method") -> str:
    """One line per row: ours, published, and whether they agree."""
    lines = []
    for row in rows:
        printed, found = published(study, row), outcome.accuracy(row)
        theirs = "—" if printed is None else f"{printed.mean:.1f} ± {printed.half_width:.2f}"
        note = f"[^{printed.erratum}]" if printed is not None and printed.erratum is not None else ""
        lines.append([row.label, row.column, _pm(found), theirs + note, outcome.agreement(study, row)])
    return _table([first, "data", "measured", "published", "agree"], lines)


def _dnc(outcome: Outcome) -> str:
    rows = outcome.studies["dnc"]
    single = [row for row in rows if not row.column.startswith("graph")]
    graphs = [row for row in rows if row.column.startswith("graph")]
    order = sorted(single, key=lambda row: COLUMNS.index(row.column))
    parts = [
        "The synthetic graph is one draw (graph seed 0), as in the paper; features are redrawn for each repetition.",
        _comparison(outcome, "dnc", order),
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
                _number(lambda_max[0]) if lambda_max else "∞",
                *(_pm(outcome.accuracy(by_graph[label, column])) for label in labels),
            ]
        )
    means = [[outcome.accuracy(row) for row in graphs if row.label == label] for label in labels]
    over = [estimate([one.mean for one in some if one is not None]) for some in means]
    lines.append(["mean over graphs", "", *(f"**{_pm(one)}**" for one in over)])
    return "\n\n".join([*parts, _table(["graph", "λ_max(B_N L†) of the training clients", *labels], lines)])


def _snc(outcome: Outcome) -> str:
    rows = outcome.studies["snc"]
    text = "Per sample; per client a vote over its 40 samples (the mean of their logits) decides:"
    lines = [[row.label, _pm(outcome.accuracy(row, "client_accuracy"))] for row in rows]
    return "\n\n".join([_comparison(outcome, "snc", rows), text, _table(["method", "clients right"], lines)])


def _sc(outcome: Outcome) -> str:
    return _comparison(outcome, "sc", outcome.studies["sc"])


def _dp(outcome: Outcome) -> str:
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
            cells.append(f"**{_pm(found)}** (published {printed.mean:.1f} ± {printed.half_width:.2f}) {agrees}")
        lines.append([label, *cells])
    text = (
        "hn: Gaussian noise on every entry of ĥ; hn_gn: on every entry of ĥ and of ∇ĥ. Evaluation uses the noisy "
        "representations too. This is noise without bounds, as in the paper: it guarantees nothing."
    )
    return "\n\n".join([text, _table(["", *(f"SD {level:g}" for level in NOISE_LEVELS)], lines)])


def _connectivity(outcome: Outcome) -> str:
    lines = []
    for row in outcome.studies["connectivity"]:
        degree = int(row.column.removeprefix("degree "))
        lines.append(
            [
                str(degree),
                _number(outcome.values(row, "lambda_max")[0]),
                _number(CONNECTIVITY_LAMBDA_MAX[degree]),
                _pm(outcome.accuracy(row)),
            ]
        )
    return _table(["degree d", "λ_max(B_N L†), ours", "λ_max, the paper's graph", "accuracy"], lines)


def _necessity(outcome: Outcome) -> str:
    lines = [[row.label, _pm(outcome.accuracy(row))] for row in outcome.studies["necessity"]]
    return _table(["method", "accuracy"], lines)


def _cora(outcome: Outcome) -> str:
    text = "2708 clients, one per paper, 140 of them labelled (public split), raw features; over seeds of the weights."
    lines = [
        [row.label, _pm(outcome.accuracy(row)), _number(_mean(outcome.values(row, "seconds"))) + " s"]
        for row in outcome.studies["cora"]
    ]
    return "\n\n".join([text, _table(["method", "accuracy", "seconds a run"], lines)])


def _staleness(outcome: Outcome) -> str:
    text = (
        "Synthetic DNC, 3000 updates. σ_H² is the mean of ‖g_k − ∇F_k(W_k)‖² over clients and over the local steps of "
        "a round, g_k being the gradient that the estimator takes; ‖∇F‖² the mean over rounds of ‖∇F(W̄)‖². The exact "
        "estimator recomputes everyone's representation at the client's own weights, which no federation could do."
    )
    lines = [
        [
            row.label,
            row.column.removeprefix("I="),
            _pm(outcome.accuracy(row)),
            _number(_mean(outcome.values(row, "grad_norm_squared"))),
            _number(_mean(outcome.values(row, "sigma_H_squared"))),
            _number(_mean(outcome.values(row, "representation_error"))),
        ]
        for row in outcome.studies["staleness"]
    ]
    head = ["estimator", "I", "accuracy", "mean ‖∇F(W̄)‖²", "σ_H²", "mean ‖C_k(W̄) − C_k(W_k)‖²"]
    return "\n\n".join([text, _table(head, lines)])


def _theory(outcome: Outcome) -> str:
    text = (
        "SC on cSBM graphs (N = 40, degree 10, I = 10 unless swept; η = 0.1, T = 1000, batches of 5). The left side of "
        "the bound, (1/T) Σ_t ‖∇F(W̄^t)‖², is taken over the rounds' W̄; the terms of its right side stand without "
        "their constants: 1/(ηT), I²η²σ_G²/N, I²η²σ_H² and I²η²κ²λ_max/N, with σ_G², σ_H² and κ² measured along the "
        "run."
    )
    lines = [
        [row.label, row.column, *(_number(value) for value in theory_terms(outcome, row).values())]
        for row in outcome.studies["theory"]
    ]
    names = ["λ_max", "(1/T) Σ ‖∇F‖²", "1/(ηT)", "I²η²σ_G²/N", "I²η²σ_H²", "I²η²κ²λ_max/N"]
    return "\n\n".join([text, _table(["swept", "value", *names], lines)])


def theory_terms(outcome: Outcome, row: Row) -> dict[str, float]:
    """λ_max, the bound's left side and the four terms of its right side, means over repetitions."""
    mean = {
        name: _mean(outcome.values(row, name))
        for name in ("lambda_max", "grad_norm_squared", "sigma_G_squared", "sigma_H_squared", "kappa_squared")
    }
    N = dict(row.data.options)["num_clients"]
    drift = (row.method.steps * row.method.lr) ** 2
    return {
        "lambda_max": mean["lambda_max"],
        "left": mean["grad_norm_squared"],
        "start": 1 / (row.method.lr * row.method.updates),
        "batches": drift * mean["sigma_G_squared"] / N,
        "staleness": drift * mean["sigma_H_squared"],
        "neighbours": drift * mean["kappa_squared"] * mean["lambda_max"] / N,
    }


def _privacy(outcome: Outcome) -> str:
    text = (
        "Synthetic DNC, 300 updates with I = 10. Differential privacy for a client's whole data against the server "
        "(δ = 10⁻⁵, neighbours replace one client's data), over all 30 rounds: ‖ĥ_j‖, ‖∇ĥ_j‖ and ‖W_k − W̄‖ are bounded "
        "by 1 and get Gaussian noise in proportion, the least that keeps to ε. V1 uploads no ∇ĥ_j; FedMLP, without a "
        "graph, only W_k. Model selection by validation loss is not part of the guarantee."
    )
    rows = {(row.label, row.column): row for row in outcome.studies["privacy"]}
    labels = list(dict.fromkeys(label for label, _ in rows))
    columns = list(dict.fromkeys(column for _, column in rows))
    lines = [[column, *(_pm(outcome.accuracy(rows[label, column])) for label in labels)] for column in columns]
    return "\n\n".join([text, _table(["", *labels], lines)])


def _disagreements(outcome: Outcome) -> str:
    """The cells whose intervals do not overlap, with the difference."""
    lines = []
    rows = {("summary", row.label, row.column): row for row in outcome.summary}
    rows |= {("dp", row.label, row.column): row for row in outcome.studies.get("dp", [])}
    for (study, _, _), row in rows.items():
        found, printed = outcome.accuracy(row), published(study, row)
        if found is not None and printed is not None and outcome.agreement(study, row) in ("no", "misprint"):
            known = f", a misprint[^{printed.erratum}]" if printed.erratum is not None else ""
            difference = found.mean - printed.mean
            theirs = f"{printed.mean:.1f} ± {printed.half_width:.2f}"
            lines.append(f"- {row.label}, {row.column}: {_pm(found)} against {theirs} ({difference:+.1f}){known}.")
    return "\n".join(lines)


def _pictures(study: str, figures: dict[str, list[tuple[str, str]]]) -> list[str]:
    return [
        f"![{caption}]({IMAGES}/{name}.png)\n\n{caption} ([SVG]({IMAGES}/{name}.svg))"
        for name, caption in figures.get(study, [])
    ]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _pm(found: Estimate | None) -> str:
    if found is None:
        return "diverged"
    return f"{found.mean:.1f}" if math.isnan(found.half_width) else f"{found.mean:.1f} ± {found.half_width:.2f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.3g}"
