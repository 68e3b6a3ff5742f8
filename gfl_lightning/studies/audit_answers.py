"""Questions that an attacker asks, the best answer that an audit found to each, and why there is none."""

from __future__ import annotations

from gfl_lightning.audit.findings import Finding
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.markdown import mean_of
from gfl_lightning.studies.outcome import Outcome

RECORD = "any client's record"
WORDS, MODEL = "neighbours' words", "membership, from the model"
QUESTIONS = {
    RECORD: (
        *("RankOne", "MatchedGradient", "FlippedUnits", "FactorisedSamples", "DecodedSample"),
        *(f"Unturned by {way}" for way in ("independent components", "known marginals", "known records")),
    ),
    "a training client's record": ("UpdateSample",),
    "its label": ("UpdateLabel", "ClassShares"),
    "membership": ("WhichWorld",),
    WORDS: ("NeighbourWords",),
    "single neighbours": ("NeighbourRecords",),
    "neighbours' labels": ("NeighbourLabels",),
    "distant edges": ("DistantEdges",),
    MODEL: ("ShadowMembership",),
    "class around a client, from the model": ("NeighbourhoodClass",),
}
OF_THE_SERVER = tuple(QUESTIONS)[:4]
OTHERS_SEE_ALL = ("first of two servers", "second of two servers", "server that forgets", "rotation")
AS_NONE, NOT_TRIED, NOT_SENT, NOBODY = "as none", "not tried", "not sent", "nobody to ask"


def findings(outcome: Outcome, row: Row) -> list[Finding]:
    """What was found in the first repetition of a row."""
    return [Finding.from_dict(one) for one in outcome.of(row)[0].get("findings", [])]


def answer(found: list[Finding], question: str) -> Finding | None:
    """The most successful attack on a question, above what guessing scores; ``None`` where there was none."""
    asked = [one for one in found if one.attack in QUESTIONS[question]]
    return max(asked, key=lambda one: (one.beats_guessing, one.success - one.blind), default=None)


def why_not(row: Row, found: list[Finding], question: str) -> str:
    """In a word, why a defence has no attack on a question."""
    if not found:
        return "diverged"
    if question not in OF_THE_SERVER:
        if row.label in OTHERS_SEE_ALL:
            return AS_NONE
        if question == MODEL:
            return NOT_TRIED
        return NOT_SENT if question == "single neighbours" else NOBODY
    several = any(one.attack == "ClassShares" for one in found)
    if question == "a training client's record" and several:
        return "has several"
    return NOT_SENT if "of two servers" in row.label or row.label == "V1" else NOBODY


def accuracies(outcome: Outcome, row: Row) -> list[float]:
    """The accuracy of each seed."""
    return [float(one) for one in outcome.of(row)[0].get("accuracies", [])]


def accuracy_of(outcome: Outcome, row: Row) -> float | None:
    """The mean over seeds; ``None`` where the federation diverged."""
    found = accuracies(outcome, row)
    return mean_of(found) if found else None


def columns(outcome: Outcome) -> dict[str, list[Row]]:
    """The rows of each data set."""
    rows = outcome.studies["audit"]
    return {
        column: [row for row in rows if row.column == column] for column in dict.fromkeys(row.column for row in rows)
    }


def nominal(outcome: Outcome, row: Row) -> float | None:
    """What the mechanisms promise with a secret key; ``None`` for nothing."""
    found = outcome.of(row)[0].get("nominal_epsilon")
    return None if found is None else float(found)
