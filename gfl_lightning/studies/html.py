"""The results as one page of HTML with its figures inside."""

from __future__ import annotations

import pandas as pd

from gfl_lightning.reports.page.page import Page
from gfl_lightning.reports.page.sections import Facts, Section, Table, Text
from gfl_lightning.reports.page.sections import Picture as Figure
from gfl_lightning.studies.drawing import Picture
from gfl_lightning.studies.fingerprint import versions
from gfl_lightning.studies.markdown import plus_minus
from gfl_lightning.studies.outcome import Outcome, published
from gfl_lightning.studies.page import QUICK, TITLES


def html_page(outcome: Outcome, pictures: dict[str, list[Picture]]) -> Page:
    """A table of test accuracies and the figures of each study, and how to repeat it."""
    seconds = sum(record["seconds"] for record in outcome.records.values())
    verdict = QUICK.strip("*") if outcome.quick else _agreement(outcome)
    sections: list[Section] = [Text("Left out", outcome.notes)] if outcome.notes else []
    if "summary" not in outcome.studies:  # drawn of the studies that it is made of
        sections += [Figure(picture.caption, picture.figure) for picture in pictures.get("summary", [])]
    for study, rows in outcome.studies.items():
        title = TITLES.get(study, study.capitalize())
        lines = []
        for row in rows:
            printed = published(study, row)
            theirs = "" if printed is None else f"{printed.mean:.1f} ± {printed.half_width:.2f}"
            line = {"row": row.label, "column": row.column, "test accuracy, %": plus_minus(outcome.accuracy(row))}
            lines.append(line | {"published": theirs, "agrees": outcome.agreement(study, row)})
        if any(outcome.accuracy(row) is not None for row in rows):
            sections.append(Table(title, pd.DataFrame(lines)))
        sections += [Figure(picture.caption, picture.figure) for picture in pictures.get(study, [])]
    libraries = ", ".join(f"{name} {number}" for name, number in versions().items())
    facts = {"trainings": len(outcome.records), "minutes of one core": seconds / 60, "versions": libraries}
    settings = Facts("Settings", {**facts, "repeat": outcome.command})
    return Page("Results, measured beside published", verdict, [*sections, settings])


def _agreement(outcome: Outcome) -> str:
    told = [outcome.agreement("summary", row) for row in outcome.summary]
    compared = [one for one in told if one in ("yes", "no")]
    if not compared:
        return "None of these cells has a published counterpart."
    return f"{compared.count('yes')} of {len(compared)} published cells agree: their intervals overlap with ours."
