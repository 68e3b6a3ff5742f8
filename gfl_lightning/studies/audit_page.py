"""The audit of all defences as a page, and its figure: accuracy against what attackers learn."""

from __future__ import annotations

import math

from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.page import EXPLAINED, glossary, proved_epsilon
from gfl_lightning.reports.style import BLUE, GREY, ORANGE, VERMILLION, canvas
from gfl_lightning.studies.auditing import SCALE, SHADOWS
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.drawing import Picture
from gfl_lightning.studies.fingerprint import versions
from gfl_lightning.studies.markdown import table
from gfl_lightning.studies.outcome import Outcome

QUESTIONS = {
    "any client's record": ("RankOne", "FlippedUnits", "DecodedSample", "Unturned by known records"),
    "a training client's record": ("UpdateSample",),
    "its label": ("UpdateLabel", "ClassShares"),
    "membership": ("WhichWorld",),
    "neighbours' words": ("NeighbourWords",),
    "single neighbours": ("NeighbourRecords",),
    "distant edges": ("DistantEdges",),
    "membership, from the model": ("ShadowMembership",),
}
PANELS = ("any client's record", "a training client's record", "neighbours' words", "membership, from the model")


def findings(outcome: Outcome, row: Row) -> list[Finding]:
    """What was found in the first repetition of a row."""
    return [Finding.from_dict(one) for one in outcome.of(row)[0].get("findings", [])]


def answer(found: list[Finding], question: str) -> Finding | None:
    """The most successful attack on a question, above what guessing scores; ``None`` where there was none."""
    asked = [one for one in found if one.attack in QUESTIONS[question]]
    return max(asked, key=lambda one: one.success - one.blind, default=None)


def section(outcome: Outcome) -> str:
    """The tables of the audit: all defences at a glance, then every attack."""
    rows = outcome.studies["audit"]
    parts = []
    for column in dict.fromkeys(row.column for row in rows):
        some = [row for row in rows if row.column == column]
        parts += [f"### {column}: at a glance", _glance(outcome, some)]
    parts += ["### Every attack", EXPLAINED]
    for row in rows:
        parts.append(_whole(outcome, row))
    every = [one for row in rows for one in findings(outcome, row)]
    return "\n\n".join([*parts, "### What the attacks are", glossary(every)])


def page(outcome: Outcome, captions: list[tuple[str, str]]) -> str:
    """The audit as a page of its own."""
    libraries = ", ".join(f"{name} {number}" for name, number in versions().items())
    seconds = sum(record["seconds"] for row in outcome.studies["audit"] for record in outcome.of(row))
    head = (
        f"Made by `{outcome.command}`, {seconds / 60:.1f} minutes of one core, with {libraries}. Each row is one seed "
        f"and one draw of the data. A tenth of the clients is public; of the others {SCALE['victims']} are attacked by "
        f"the server (twice as many for membership) and {SCALE['fellows']} attack their neighbours; an outsider trains "
        f"{SHADOWS} federations where its column has a number."
    )
    pictures = [f"![{caption}](images/results/{name}.png)\n\n{caption}" for name, caption in captions]
    parts = ["# What the messages reveal, measured by attacks", head, *pictures, section(outcome)]
    return "\n\n".join(parts) + "\n"


def _glance(outcome: Outcome, rows: list[Row]) -> str:
    """A row for each defence, a column for each question: success, and guessing in brackets."""
    lines = []
    for row in rows:
        record, found = outcome.of(row)[0], findings(outcome, row)
        cells = []
        for question in QUESTIONS:
            one = answer(found, question)
            text = "—" if one is None else f"{one.success:.2f} ({one.blind:.2f})"
            cells.append(f"**{text}**" if one is not None and one.beats_guessing else text)
        accuracy = "diverged" if record["accuracy"] is None else f"{100 * record['accuracy']:.1f}"
        lines.append([row.label, accuracy, _epsilons(record.get("claimed_epsilon"), found), *cells])
    head = ["defence", "accuracy %", "ε claimed / proved", *QUESTIONS]
    note = "Success (guessing in brackets); bold where it beats guessing. A dash: not measured, or nothing to attack."
    return table(head, lines) + "\n\n" + note


def _epsilons(claimed: float | None, found: list[Finding]) -> str:
    proved = proved_epsilon(found)
    ours = "—" if math.isnan(proved) else f"≥ {proved:.1f}"
    return f"{'∞' if claimed is None else f'{claimed:g}'} / {ours}"


def _whole(outcome: Outcome, row: Row) -> str:
    """Every finding of a defence with its interval and verdict."""
    lines = [
        [
            one.adversary,
            one.attack + (", graph known" if "graph is known" in one.knowledge else ""),
            f"{one.success:.2f} ({one.low:.2f}–{one.high:.2f})",
            f"{one.blind:.2f}",
            f"{one.targets}",
            one.verdict,
        ]
        for one in findings(outcome, row)
    ]
    head = ["adversary", "attack", "success", "guessing", "targets", "verdict"]
    return f"**{row.column}, {row.label}**\n\n" + table(head, lines)


def pictures(outcome: Outcome) -> list[Picture]:
    """Accuracy against success, a panel for each of four questions, a point for each defence, of the first data set."""
    rows = outcome.studies["audit"]
    rows = [row for row in rows if row.column == rows[0].column]
    figure = canvas(12.0, 9.0)
    grid = figure.subplots(2, 2).flatten()
    for axes, question in zip(grid, PANELS, strict=True):
        points = []
        for row in rows:
            one, accuracy = answer(findings(outcome, row), question), outcome.of(row)[0]["accuracy"]
            if one is not None and accuracy is not None:
                points.append((row.label, one, 100 * accuracy))
        for label, one, accuracy in points:
            colour = VERMILLION if one.beats_guessing else BLUE
            errors = [[max(0.0, one.success - one.low)], [max(0.0, one.high - one.success)]]
            axes.errorbar(one.success, accuracy, xerr=errors, color=colour, marker="o", markersize=5, elinewidth=0.8)
            axes.annotate(label, (one.success, accuracy), (4, 3), textcoords="offset points", fontsize=6.5, color=GREY)
        if points:
            blind = sum(one.blind for _, one, _ in points) / len(points)
            axes.axvline(blind, color=ORANGE, linestyle="--", linewidth=1)
        axes.set(title=question, xlabel="attack success", ylabel="test accuracy (%)", xlim=(-0.02, 1.08))
    caption = (
        "Accuracy against what attackers learn: each point is a defence, best is top left. Dashed: guessing without "
        "messages. Blue: no better than guessing. Bars: 95 % intervals."
    )
    return [Picture("audit", caption, figure)]
