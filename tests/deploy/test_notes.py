"""What a site says beside its messages: an honest site's notes pass, and any other ones count as no answer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deploy_builders import Faulty, driver, make_tables, plan, sites
from hypothesis import given, settings
from hypothesis import strategies as st

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.news import RoundNews
from gfl_lightning.deploy.notes import Asked, require_notes
from gfl_lightning.deploy.rules import BlobError
from gfl_lightning.deploy.transport import LocalTransport

ASKED = Asked({"features": {"age": "numeric", "ward": "categorical"}, "classes": ["ill", "well"]}, ("a", "d"))
SUMS: dict[str, Any] = {
    "features": {
        "age": {"some_missing": False, "count": 3, "sum": 150.5},
        "ward": {"some_missing": True, "categories": ["A"]},
    },
    "classes": [2, 1],
    "training": {"a": 3, "d": 0},
    "validation": 2,
    "most": 5,
}


def changed(*path: str, to: Any) -> dict[str, Any]:
    """The notes with something else at a place."""
    made = copy.deepcopy(SUMS)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return made


def test_an_honest_sites_sums_pass() -> None:
    require_notes("sums", SUMS, ASKED)
    public = replace(ASKED, public=("age",))
    require_notes("sums", changed("features", "age", to={"some_missing": False}), public)


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        (changed("training", "b", to=4), "notes must name a, d, got"),
        (changed("training", "a", to=-1), "a must be a whole number of at least 0, got -1"),
        (changed("training", "a", to=True), "a must be a whole number of at least 0, got True"),
        (changed("training", to=[3]), "training must be named values, got"),
        (changed("features", "age", "sum", to="150"), "sum of age must be a number, got 150"),
        (changed("features", "age", to={"some_missing": False}), "notes must name count, some_missing, sum, got"),
        (changed("features", "ward", "categories", to=[["A"]]), "categories of ward must be text"),
        (changed("features", "height", to={}), "notes must name age, ward, got"),
        (changed("features", "age", "sum", to=10**400), "sum of age must be a number, got 1000"),
        (changed("classes", to=[3]), "classes must be 2 counts, got"),
        (changed("classes", to=[3, 10**400]), "classes must be 2 counts, got"),
        (changed("validation", to=None), "validation must be a whole number of at least 0, got None"),
        ({}, "notes must name classes, features, most, training, validation, got"),
    ],
)
def test_sums_that_do_not_answer_are_refused(notes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BlobError, match=sentence):
        require_notes("sums", notes, ASKED)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SUMS, "age", "a", "gaps"]), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    phase=st.sampled_from(["columns", "sums", "squares", "train", "finish"]),
    notes=st.dictionaries(st.sampled_from([*SUMS, "labels", "skipped", "epsilon", "gaps", "age"]), anything),
)
def test_any_notes_pass_or_are_refused(phase: str, notes: dict[str, Any]) -> None:
    asked = replace(ASKED, notes={**ASKED.notes, "means": {"age": 50.0}})
    with suppress(BlobError):
        require_notes(phase, notes, asked)


def lying(folder: Path, phase: str, change: Callable[[dict[str, Any]], Any], news: list[RoundNews]) -> Any:
    """A deployment in which north says something else in a phase."""
    make_tables(folder)
    answers = LocalTransport({name: one.answer for name, one in sites(folder, plan("sc", 2)).items()})
    made = driver(folder, plan("sc", 2), transport=Faulty(answers), watch=news.append)

    def wrong(current: str, blob: bytes) -> bytes:
        if current != phase:
            return blob
        t = 0 if made.ask.sums is None else made.ask.sums.server.round
        told = decode(blob, made.ask.rules("north", phase, t))
        notes = dict(copy.deepcopy(told.notes))
        change(notes)
        return encode(replace(told, notes=notes))

    made.transport.wrong = wrong  # type: ignore[attr-defined]
    return made


def test_a_site_that_counts_rows_of_others_cannot_begin(tmp_path: Path) -> None:
    made = lying(tmp_path, "sums", lambda notes: notes["training"].update(b=9), [])
    with pytest.raises(InputError, match="north: its answer was refused: notes must name a, d, f, got"):
        made.run()


def test_a_site_whose_notes_are_wrong_in_a_round_is_absent_from_it(tmp_path: Path) -> None:
    news: list[RoundNews] = []
    lying(tmp_path, "train", lambda notes: notes.update(skipped="all"), news).run()
    assert [one.untrained for one in news] == [("north",)] * 2
    assert "its answer was refused: skipped must be a whole number of at least 0, got all" in news[0].missing["north"]
