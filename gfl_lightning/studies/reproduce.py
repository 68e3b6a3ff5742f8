"""Run studies: load what is finished, train the rest, write results.json, the page and the figures."""

from __future__ import annotations

import sys

from gfl_lightning.checks import InputError, require
from gfl_lightning.graphs.datasets.planetoid import read_planetoid
from gfl_lightning.reports.page.page import write_page
from gfl_lightning.studies import audit_page
from gfl_lightning.studies.catalogue import STUDIES, shrunk
from gfl_lightning.studies.cell import Cell, Row
from gfl_lightning.studies.command import Order
from gfl_lightning.studies.drawing import save
from gfl_lightning.studies.figures import pictures
from gfl_lightning.studies.html import html_page
from gfl_lightning.studies.outcome import Outcome, as_json
from gfl_lightning.studies.page import IMAGES, page
from gfl_lightning.studies.pool import run_cells
from gfl_lightning.studies.store import Record, Store
from gfl_lightning.whole_files import whole_file


def reproduce(order: Order) -> Outcome:
    """Everything that an order asks for."""
    planned = {
        name: [shrunk(row) if order.quick else row for row in STUDIES[name](order.repetitions)]
        for name in order.studies
    }
    studies, notes = _without_what_needs_cora(planned)
    for note in notes:
        print(note, file=sys.stderr)
    cells = list(dict.fromkeys(cell for rows in studies.values() for row in rows for cell in row.cells))
    store = Store(order.out / "cells")
    records, outdated = store.load(cells)
    if outdated:
        print(
            f"{outdated} of {len(cells)} stored cells in {store.folder} were made by other code or library versions; "
            "they are computed again.",
            file=sys.stderr,
        )
    if records:
        print(f"{len(records)} of {len(cells)} cells are finished already.", file=sys.stderr)

    def keep(cell: Cell, record: Record) -> None:
        store.keep(cell, record)
        records[cell] = record

    missing = [cell for cell in cells if cell not in records]
    if missing and order.finished:
        studies, notes = _finished(studies, records, notes)
    elif missing:
        run_cells(missing, order.jobs, keep)
    kept = {cell: records[cell] for cell in cells if cell in records}
    outcome = Outcome(studies, kept, order.command, order.quick, notes)
    write(outcome, order)
    return outcome


def write(outcome: Outcome, order: Order) -> None:
    """results.json, results.md, results.html and the figures."""
    made = pictures(outcome)
    for picture in (picture for some in made.values() for picture in some):
        save(picture, order.out / IMAGES)
    captions = {study: [(picture.name, picture.caption) for picture in some] for study, some in made.items()}
    files = {"results.json": as_json(outcome), "results.md": page(outcome, captions)}
    if "audit" in outcome.studies:
        files["audit.md"] = audit_page.page(outcome, captions["audit"])
    for name, text in files.items():
        with whole_file(order.out / name) as scratch:
            scratch.write_text(text, encoding="utf-8")
    write_page(order.out / "results.html", html_page(outcome, made))
    count = sum(map(len, made.values()))
    print(f"{order.out / 'results.md'}, results.html, results.json and {count} figures are written.")


def _finished(
    studies: dict[str, list[Row]], records: dict[Cell, Record], notes: tuple[str, ...]
) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows of which every cell is there, and a sentence that names the others."""
    whole = {
        name: [row for row in rows if all(cell in records for cell in row.cells)] for name, rows in studies.items()
    }
    remaining = {name: rows for name, rows in whole.items() if rows}
    require(bool(remaining), "--finished", "find a row whose cells are all finished", "none")
    left = [f"{row.column}: {row.label}" for name, rows in studies.items() for row in rows if row not in whole[name]]
    sentence = f"Not finished when this was written (the same command without --finished goes on): {'; '.join(left)}."
    return remaining, (*notes, sentence)


def _without_what_needs_cora(studies: dict[str, list[Row]]) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows that can be run, and a sentence if Cora's files are needed and cannot be had."""
    needing = sum(row.repetitions for rows in studies.values() for row in rows if row.experiment.needs_cora)
    if not needing:
        return studies, ()
    try:
        read_planetoid("Cora")
    except InputError as reason:
        kept = {name: [row for row in rows if not row.experiment.needs_cora] for name, rows in studies.items()}
        sentence = f"{needing} trainings that need Cora are left out: {reason}"
        remaining = {name: rows for name, rows in kept.items() if rows}
        if not remaining:
            raise InputError(sentence) from reason
        return remaining, (sentence,)
    return studies, ()
