"""The figure of the audit: accuracy against attack success, for all defences of the first data set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from matplotlib.axes import Axes

from gfl_lightning.audit.findings import Finding
from gfl_lightning.reports.style import BLUE, FAINT, GREEN, GREY, ORANGE, PURPLE, VERMILLION, canvas
from gfl_lightning.studies.audit_answers import MODEL, RECORD, WORDS, accuracy_of, answer, columns, findings
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.drawing import Picture
from gfl_lightning.studies.outcome import Outcome

PANELS = {
    RECORD: "server: the record of any client",
    "its label": "server: the label of a training client",
    WORDS: "fellow client: words of its neighbours",
    MODEL: "outsider: was a record trained on?",
}
COLOURS = {"hn_gn": VERMILLION, "hn": ORANGE, "bounds and noise": BLUE, "randomised once": PURPLE, "": GREEN}
ALIKE = (0.03, 1.2)
PANEL, LETTER, HEIGHT = (345.0, 245.0), 5.7, 12.0  # of a panel, a letter and a line of text, in points
PLACES = [(x, y) for y in (11, -11, 24, -24, 37, -37, 50, -50, 63, -63) for x in (0, -30, 30, -60, 60)]
Box: TypeAlias = tuple[float, float, float, float]
CAPTION = (
    "Accuracy against what attackers learn: {column}. Each number is a defence, and best is top left. Bars are 95 % "
    "intervals; the grey tick on the height of a point is guessing without messages, by who knows as much besides, and "
    "hollow points are no better than that."
)


class Point(NamedTuple):
    """A defence in a panel."""

    number: int
    label: str
    found: Finding
    accuracy: float


def pictures(outcome: Outcome) -> list[Picture]:
    """A figure for each data set; the first is called ``audit``, for whoever shows one only."""
    made = columns(outcome).items()
    names = ["audit", *(f"audit_{column.split()[-1].lower()}" for column, _ in list(made)[1:])]
    return [_picture(outcome, name, column, rows) for name, (column, rows) in zip(names, made, strict=True)]


def _picture(outcome: Outcome, name: str, column: str, rows: list[Row]) -> Picture:
    """A panel for each of four questions, and the defences by number."""
    known = [(number, row, accuracy_of(outcome, row)) for number, row in enumerate(rows, 1)]
    every = [100 * mean for _, _, mean in known if mean is not None] or [0.0, 100.0]
    figure = canvas(13.2, 8.4)
    grid = figure.subplots(2, 3, width_ratios=(1, 1, 0.42))
    for axes, (question, title) in zip(grid[:, :2].flatten(), PANELS.items(), strict=True):
        points = []
        for number, row, mean in known:
            one = answer(findings(outcome, row), question)
            if one is not None and mean is not None:
                points.append(Point(number, row.label, one, 100 * mean))
        axes.set(title=title, xlabel="attack success", ylabel="test accuracy (%)")
        axes.set(xlim=(-0.06, 1.08), ylim=(min(every) - 8, max(every) + 12))
        draw_panel(axes, points)
    for axes in grid[:, 2]:
        axes.axis("off")
    for place, (number, row, _) in enumerate(known):
        where = (0.0, 1.0 - 0.048 * place * 20 / max(20, len(known)))
        text = f"{number:>2}  {row.label}"
        grid[0, 2].annotate(text, where, xycoords="axes fraction", fontsize=9, va="top", color=colour_of(row.label))
    return Picture(name, CAPTION.format(column=column), figure)


def colour_of(label: str) -> str:
    """The colour of a family of defences."""
    return next(colour for family, colour in COLOURS.items() if label.startswith(family))


def clusters(points: Sequence[Point]) -> list[list[Point]]:
    """Points that lie together, from top to bottom."""
    found: list[list[Point]] = []
    for point in sorted(points, key=lambda one: -one.accuracy):
        for some in found:
            near = abs(some[0].found.success - point.found.success) <= ALIKE[0]
            if near and abs(some[0].accuracy - point.accuracy) <= ALIKE[1]:
                some.append(point)
                break
        else:
            found.append([point])
    return found


def numbers(some: Sequence[int]) -> str:
    """Numbers in order, runs of three and more by their ends.

    >>> numbers([7, 1, 3, 4, 5])
    '1, 3–5, 7'
    """
    parts = []
    for _, run in groupby(enumerate(sorted(some)), key=lambda pair: pair[1] - pair[0]):
        values = [value for _, value in run]
        parts += [f"{values[0]}–{values[-1]}"] if len(values) > 2 else [str(value) for value in values]
    return ", ".join(parts)


def draw_panel(axes: Axes, points: Sequence[Point]) -> None:
    """Points, their intervals, what guessing scores on each, and the numbers beside the points."""
    if not points:
        return
    for _, label, one, accuracy in points:
        colour = colour_of(label)
        axes.plot([one.blind], [accuracy], marker="|", markersize=11, markeredgewidth=2.0, color=GREY, zorder=1)
        errors = [[max(0.0, one.success - one.low)], [max(0.0, one.high - one.success)]]
        inside = colour if one.beats_guessing else "white"
        style: dict[str, Any] = {"marker": "o", "markersize": 6, "markerfacecolor": inside, "elinewidth": 0.8}
        axes.errorbar(one.success, accuracy, xerr=errors, color=colour, alpha=0.9, **style)
    some = clusters(points)
    at = [_in_points(axes, cluster[0]) for cluster in some]
    taken: list[Box] = [(x - 4, x + 4, y - 4, y + 4) for x, y in at]
    for cluster, (x, y) in zip(some, at, strict=True):
        text = numbers([one.number for one in cluster])
        box, dx, dy = _place(x, y, LETTER * len(text) / 2 + 2, taken)
        taken.append(box)
        axes.annotate(
            text,
            (cluster[0].found.success, cluster[0].accuracy),
            (dx, dy),
            textcoords="offset points",
            fontsize=8.5,
            color=colour_of(cluster[0].label),
            ha="center",
            va="center",
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.6} if abs(dx) + abs(dy) > 11 else None,
        )


def _place(x: float, y: float, half: float, taken: Sequence[Box]) -> tuple[Box, int, int]:
    """Where a text of a width goes: the nearest place within the panel that is free."""
    boxes = [((x + dx - half, x + dx + half, y + dy - HEIGHT / 2, y + dy + HEIGHT / 2), dx, dy) for dx, dy in PLACES]
    within = [one for one in boxes if one[0][0] > -8 and one[0][1] < PANEL[0] + 8]
    free = [one for one in within if not any(_overlap(one[0], other) for other in taken)]
    return (free or within or boxes)[0]


def _in_points(axes: Axes, point: Point) -> tuple[float, float]:
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    x = (point.found.success - left) / (right - left) * PANEL[0]
    return x, (point.accuracy - low) / (high - low) * PANEL[1]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
