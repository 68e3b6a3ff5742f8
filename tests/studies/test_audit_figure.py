"""The audit's figure: every defence has its number beside its point, and no number covers another."""

from __future__ import annotations

import pytest
from matplotlib.text import Annotation, Text

from gfl_lightning.audit.findings import Finding
from gfl_lightning.reports.style import canvas
from gfl_lightning.studies.audit_figure import Point, clusters, colour_of, draw_panel, numbers


def point(number: int, success: float, accuracy: float, beats: bool = True) -> Point:
    texts = ("server", "RankOne", "aim", "knowledge", "measure")
    found = Finding(*texts, 10, success, success - 0.02, success + 0.02, 0.2, 0.0, beats, "verdict")
    return Point(number, "none", found, accuracy)


def test_defences_that_meet_share_a_label() -> None:
    found = clusters([point(1, 1.0, 60.0), point(2, 0.99, 60.5), point(3, 0.5, 60.0), point(4, 1.0, 50.0)])
    assert [[one.number for one in some] for some in found] == [[2, 1], [3], [4]]
    assert numbers([1, 2, 3, 9, 7]) == "1–3, 7, 9"


@pytest.mark.parametrize("spread", [0.0, 0.035, 0.2])
def test_labels_name_every_defence_and_do_not_cover_each_other(spread: float) -> None:
    figure = canvas(13.2, 8.4)
    axes = figure.subplots(2, 3, width_ratios=(1, 1, 0.42))[0, 0]
    axes.set(xlim=(-0.06, 1.08), ylim=(0, 80))
    draw_panel(axes, [point(number, 0.1 + spread * number % 0.8, 40.0 + number % 4) for number in range(1, 13)])
    figure.draw_without_rendering()
    texts = [one for one in axes.texts if isinstance(one, Annotation) and one.get_text() != "guessing"]
    named = {int(part) for one in texts for part in _spelled(one.get_text())}
    assert named == set(range(1, 13))
    boxes = [Text.get_window_extent(one) for one in texts]  # without the lines to their points
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])


def _spelled(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(", "):
        ends = [int(end) for end in part.split("–")]
        found += range(ends[0], ends[-1] + 1)
    return found


def test_families_have_colours_of_their_own() -> None:
    labels = ("none", "hn 0.5", "hn_gn 0.5", "bounds and noise, ε = 1", "randomised once, ε = 4")
    assert len({colour_of(label) for label in labels}) == len(labels)
