"""The audit of all defences as a page: findings in words, defences at a glance, then attack by attack."""

from __future__ import annotations

import math

from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.intervals import empirical_epsilon
from gfl_lightning.audit.membership import MANY
from gfl_lightning.audit.page import EXPLAINED, proved_epsilon
from gfl_lightning.audit.stage import BRIEFLY
from gfl_lightning.studies.audit_answers import QUESTIONS, accuracies, answer, columns, findings, nominal, why_not
from gfl_lightning.studies.audit_words import in_words, matrix
from gfl_lightning.studies.auditing import SCALE, SEEDS, SHADOWS
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.fingerprint import versions
from gfl_lightning.studies.markdown import mean_of, table
from gfl_lightning.studies.outcome import Outcome

MATRIX = """\
On how many data sets the best attack on a question beats guessing, of those where it was tried, and what a defence
costs beside none, in points of accuracy, from the least to the most over data sets."""
REASONS = """\
In place of a number, why there is none. *As none*: the defence is about the server alone, and this adversary learns
what it learns without it. *Not sent*: the message that the attack reads does not exist, or this server does not get it.
*Has several*: every training client has more than one sample, and none is alone in an update. *Not tried*: membership
from the model was measured under some defences only. *Nobody to ask*: no client has a case of it."""


def section(outcome: Outcome) -> str:
    """Everything but how the page was made."""
    parts = ["### What was found", in_words(outcome), "### All data sets", MATRIX, matrix(outcome)]
    for column, rows in columns(outcome).items():
        parts += [f"### {column}: at a glance", _glance(outcome, rows)]
    return "\n\n".join([*parts, _notes(), "### Attack by attack", EXPLAINED, *_attacks(outcome)])


def page(outcome: Outcome, captions: list[tuple[str, str]]) -> str:
    """The audit as a page of its own."""
    libraries = ", ".join(f"{name} {number}" for name, number in versions().items())
    records = {cell: outcome.records[cell] for row in outcome.studies["audit"] for cell in row.cells}
    seconds = sum(record["seconds"] for record in records.values())
    head = (
        f"Made by `{outcome.command}`, {seconds / 60:.1f} minutes of one core, with {libraries}. Each row is one draw "
        f"of the data and one seed, but for accuracy, a mean over {SEEDS} seeds of weights and noise (one for bounds "
        "and noise on Cora). A tenth of the clients is public; of the others the server attacks "
        f"{SCALE['victims']} for their records, {MANY} times as many for labels and membership, and "
        f"{SCALE['fellows']} attack their neighbours. Where every look draws the noise of a large Jacobian, half as "
        f"many are attacked for their records and as many for membership as for both, over {SCALE['noisy_rounds']} "
        f"rounds. An outsider trains {SHADOWS} federations where its column has a number. "
        "`python -m gfl_lightning audit --config FILE` does the same on your own configuration, with more targets."
    )
    pictures = [f"![{caption}](images/results/{name}.png)\n\n{caption}" for name, caption in captions]
    notes = [f"**{note}**" for note in outcome.notes]
    first, *others = pictures or [""]
    parts = ["# What the messages reveal, measured by attacks", head, *notes, first]
    body = section(outcome).replace("### Attack by attack", "\n\n".join([*others, "### Attack by attack"]))
    return (
        "\n\n".join([*(part for part in parts if part), body.replace("\n### ", "\n## ").replace("### ", "## ", 1)])
        + "\n"
    )


def _glance(outcome: Outcome, rows: list[Row]) -> str:
    """A row for each defence, a column for each question: success, and guessing in brackets."""
    lines = []
    for row in rows:
        found, cells = findings(outcome, row), []
        for question in QUESTIONS:
            one = answer(found, question)
            if one is None:
                cells.append(f"*{why_not(row, found, question)}*")
                continue
            text = f"{one.success:.2f} ({one.blind:.2f})"
            cells.append(f"**{text}**" if one.beats_guessing else text)
        lines.append([row.label, _accuracy(outcome, row), _epsilons(nominal(outcome, row), found), *cells])
    return table(["defence", "accuracy % (range)", "ε nominal / proved", *QUESTIONS], lines)


def _notes() -> str:
    return (
        "Success of the best attack on each question (guessing in brackets); bold where it beats guessing. A record is "
        "scored by its cosine, where clients share the mean of several by the share of samples read; a label by "
        "being right, class shares by their distance; words by how many of ten named are right, other features by the "
        f"cosine.\n\n{REASONS}\n\n"
        "Nominal ε: what the mechanisms promise with a secret key. Noise here is drawn from a seed, so that the page "
        "can be made again; who knows the seed is promised nothing (ε = ∞), and the attacks are not told it. Proved "
        "ε: what the errors of the membership test rule out, by Clopper–Pearson; a test that never errs proves "
        f"{_most_proved():.1f} with so many targets, and none can prove more."
    )


def _most_proved() -> float:
    """The ε that a membership test without an error proves."""
    cases = MANY * SCALE["victims"]
    return empirical_epsilon(cases, cases, cases, cases, 0.0)


def _accuracy(outcome: Outcome, row: Row) -> str:
    """Mean and range over seeds, in percent."""
    found = accuracies(outcome, row)
    if not found:
        return "diverged"
    if len(found) == 1:
        return f"{100 * found[0]:.1f}"
    return f"{100 * mean_of(found):.1f} ({100 * min(found):.1f}–{100 * max(found):.1f})"


def _epsilons(claim: float | None, found: list[Finding]) -> str:
    proved = proved_epsilon(found)
    ours = "—" if math.isnan(proved) else f"≥ {proved:.1f}"
    return f"{'∞' if claim is None else f'{claim:.4g}'} / {ours}"


def _attacks(outcome: Outcome) -> list[str]:
    """For each attack with its side knowledge what it is, and a table of defences by data sets."""
    sets = columns(outcome)
    by_row = {row: findings(outcome, row) for rows in sets.values() for row in rows}
    every = {(one.attack, one.knowledge): one for found in by_row.values() for one in found}
    several = {attack for attack, _ in every if sum(attack == other for other, _ in every) > 1}
    parts = []
    for (attack, knows), one in sorted(
        every.items(), key=lambda pair: (pair[1].adversary != "server", pair[1].adversary)
    ):
        name = f"{attack} ({BRIEFLY.get(knows, knows)})" if attack in several else attack
        about = f"The {one.adversary} wants: {one.aim}. Scored by: {one.measure}. Knows besides: {knows}."
        lines = []
        for label in dict.fromkeys(row.label for row in by_row):
            cells = [_cell(by_row, column, label, attack, knows) for column in sets]
            if any(cells):
                lines.append([label, *(cell or "—" for cell in cells)])
        parts.append(f"#### {name}\n\n{about}\n\n{table(['defence', *sets], lines)}")
    return parts


def _cell(by_row: dict[Row, list[Finding]], column: str, label: str, attack: str, knows: str) -> str:
    """Success with its interval, what guessing scores, and the number of targets."""
    for row, found in by_row.items():
        if (row.column, row.label) == (column, label):
            for one in found:
                if (one.attack, one.knowledge) == (attack, knows):
                    text = f"{one.success:.2f} ({one.low:.2f}–{one.high:.2f})"
                    shown = f"**{text}**" if one.beats_guessing else text
                    return f"{shown}, guessing {one.blind:.2f}, {one.targets} targets"
    return ""
