"""The results as a Markdown page: tables with the published numbers beside ours, figures, errata as footnotes."""

from __future__ import annotations

from gfl_lightning.studies import audit_page, our_tables, paper_tables, private_page
from gfl_lightning.studies.fingerprint import versions
from gfl_lightning.studies.markdown import plus_minus, table
from gfl_lightning.studies.outcome import Outcome, published
from gfl_lightning.studies.published import COLUMNS, ERRATA

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
    "privacy": "Accuracy against ε: one client hidden (ours)",
    "samples": "Accuracy against ε: clients with many samples (ours)",
    "settings": "Settings of randomised records (ours)",
    "audit": "What the messages reveal (ours)",
}


def page(outcome: Outcome, figures: dict[str, list[tuple[str, str]]]) -> str:
    """The page; ``figures`` are the names and captions of the pictures of each study."""
    parts = ["# Results, measured beside published", _head(outcome)]
    if outcome.summary:
        parts += ["## Summary", _summary(outcome), *_pictures("summary", figures)]
    tables = {
        "dnc": paper_tables.dnc,
        "snc": paper_tables.snc,
        "sc": paper_tables.sc,
        "dp": paper_tables.dp,
        "connectivity": paper_tables.connectivity,
        "necessity": paper_tables.necessity,
        "cora": our_tables.cora,
        "staleness": our_tables.staleness,
        "theory": our_tables.theory,
        "privacy": private_page.clients,
        "samples": private_page.samples,
        "settings": private_page.settings,
        "audit": audit_page.section,
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
        return f"**{plus_minus(found)}** (published {printed.mean:.1f} ± {printed.half_width:.2f}) {mark}"

    lines = [[label, *(cell(label, column) for column in columns)] for label in labels]
    return table(["", *columns], lines) + "\n\n✓ intervals overlap, ✗ they do not."


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
            lines.append(
                f"- {row.label}, {row.column}: {plus_minus(found)} against {theirs} ({difference:+.1f}){known}."
            )
    return "\n".join(lines)


def _pictures(study: str, figures: dict[str, list[tuple[str, str]]]) -> list[str]:
    return [f"![{caption}]({IMAGES}/{name}.png)\n\n{caption}" for name, caption in figures.get(study, [])]
