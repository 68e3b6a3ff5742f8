"""What an audit of all defences found, in sentences made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gfl_lightning.audit.page import proved_epsilon
from gfl_lightning.studies.audit_answers import QUESTIONS, accuracy_of, answer, columns, findings, nominal
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.markdown import mean_of, table
from gfl_lightning.studies.outcome import Outcome


def in_words(outcome: Outcome) -> str:
    """A sentence or two for each data set, on the best defences, and on ε."""
    lines = [*_undefended(outcome), *_defended(outcome), *_epsilons(outcome)]
    return "\n".join(f"- {line}" for line in lines)


def matrix(outcome: Outcome) -> str:
    """For each defence, what it costs and on how many data sets attacks beat guessing, by question."""
    sets = columns(outcome)
    lines = []
    for label in dict.fromkeys(row.label for rows in sets.values() for row in rows):
        rows = [row for some in sets.values() for row in some if row.label == label]
        cells = []
        for question in QUESTIONS:
            asked = [one for one in (answer(findings(outcome, row), question) for row in rows) if one is not None]
            beaten = sum(one.beats_guessing for one in asked)
            text = f"{beaten} of {len(asked)}" if asked else "—"
            cells.append(f"**{text}**" if beaten else text)
        lines.append([label, _costs(outcome, rows), *cells])
    return table(["defence", "accuracy, points", *QUESTIONS], lines)


def _undefended(outcome: Outcome) -> list[str]:
    told = []
    for column, rows in columns(outcome).items():
        plain = [row for row in rows if row.label == "none"]
        if plain:
            some = [answer(findings(outcome, plain[0]), question) for question in QUESTIONS]
            verdicts = [one.verdict for one in some if one is not None and one.tells]
            told.append(f"**{column}, no defence:** {'; '.join(dict.fromkeys(verdicts)) or 'nothing beats guessing'}.")
    return told


def _defended(outcome: Outcome) -> list[str]:
    """Who leaves nothing, on every data set where it was tried, and what that costs."""
    sets = columns(outcome)
    labels = dict.fromkeys(row.label for rows in sets.values() for row in rows)
    silent, only = [], {}
    for label in labels:
        rows = [row for some in sets.values() for row in some if row.label == label]
        beaten = {q for q in QUESTIONS for row in rows if _beaten(outcome, row, q)}
        if not beaten:
            silent.append(f"{label} (accuracy {_costs(outcome, rows)} points)")
        elif len(beaten) == 1:
            only[label] = next(iter(beaten))
    lines = [
        f"**Nothing beats guessing** under {_listed(silent)}." if silent else "**Every defence leaves something.**"
    ]
    for question in dict.fromkeys(only.values()):
        some = [label for label, left in only.items() if left == question]
        lines.append(f"**All that beats guessing is “{question}”** under {_listed(some)}.")
    return lines


def _epsilons(outcome: Outcome) -> list[str]:
    """The largest proved ε of each claim, and whether a claim is refuted."""
    proved: dict[float, float] = {}
    for row in outcome.studies["audit"]:
        claim, found = nominal(outcome, row), findings(outcome, row)
        if claim is not None and found:
            ours = proved_epsilon(found)
            proved[round(claim, 2)] = max(proved.get(round(claim, 2), 0.0), 0.0 if math.isnan(ours) else ours)
    if not proved:
        return []
    pairs = ", ".join(f"{ours:.1f} of {claim:g}" for claim, ours in sorted(proved.items()))
    broken = any(ours > claim for claim, ours in proved.items())
    verdict = "**A claim is refuted.**" if broken else "No claim is refuted."
    return [f"**ε:** the largest that a membership test proves, beside the nominal one: {pairs}. {verdict}"]


def _beaten(outcome: Outcome, row: Row, question: str) -> bool:
    one = answer(findings(outcome, row), question)
    return one is not None and one.beats_guessing


def _costs(outcome: Outcome, rows: Sequence[Row]) -> str:
    """Accuracy less that without a defence, the least and the most over data sets, in points."""
    plain = {row.column: accuracy_of(outcome, row) for row in outcome.studies["audit"] if row.label == "none"}
    apart = []
    for row in rows:
        ours, theirs = accuracy_of(outcome, row), plain.get(row.column)
        if ours is not None and theirs is not None:
            apart.append(100 * (ours - theirs))
    if not apart:
        return "—"
    low, high = min(apart), max(apart)
    return f"{mean_of(apart):+.1f}" if f"{low:+.1f}" == f"{high:+.1f}" else f"{low:+.1f} to {high:+.1f}"


def _listed(some: Sequence[str]) -> str:
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} and {some[-1]}"
