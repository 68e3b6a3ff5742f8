"""What the figures of all studies share: files, bands, points and legends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gfl_lightning.reports.style import GREY, STYLE
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.outcome import Outcome
from gfl_lightning.studies.statistics import band
from gfl_lightning.whole_files import whole_file

MARKS = ("o", "s", "^", "D", "v")
SMALL: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "ha": "center", "color": GREY}


class Picture(NamedTuple):
    """A figure with the name of its files and its caption."""

    name: str
    caption: str
    figure: Figure


def save(picture: Picture, folder: Path) -> None:
    """Write ``name.png``; the same figure gives the same bytes."""
    with rc_context(STYLE), whole_file(folder / f"{picture.name}.png") as scratch:
        picture.figure.savefig(scratch, format="png", metadata={"Software": None})


def loss_band(axes: Axes, outcome: Outcome, row: Row, name: str, colour: str, label: str) -> None:
    """A mean loss curve with its 95 % band."""
    curves = [record["curves"] for record in outcome.of(row) if not record["diverged"]]
    if not curves:
        return
    x = curves[0]["updates"]
    mean, half = band(np.array([curve[name] for curve in curves], dtype=float))
    axes.plot(x, mean, color=colour, label=label, linewidth=1.3)
    if len(curves) > 1:
        axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)


def within_percent(limits: Callable[[], tuple[float, float]], put: Callable[..., object]) -> None:
    """Keep an axis of percentages within 0 … 100, however wide an interval is."""
    low, high = limits()
    put(max(0, low), min(100, high))


def points(colour: str, mark: str) -> dict[str, Any]:
    """Style of points with error bars."""
    return {"color": colour, "marker": mark, "linestyle": "none", "markersize": 5, "capsize": 2, "elinewidth": 1.2}


def legend_once(figure: Figure, grid: Iterable[Axes]) -> None:
    """One legend above all panels, each label once."""
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=len(handles))
