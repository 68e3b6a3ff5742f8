"""How all figures look: colours that colour-blind readers tell apart, one style, canvases that belong to no window."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BLUE, VERMILLION, GREEN, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7"  # Okabe and Ito
LINES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE)
GREY, FAINT = "#8C8C8C", "#C4C4C4"
STYLE: dict[Any, Any] = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
}


def canvas(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def single(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    figure = canvas(width, height)
    return figure, figure.add_subplot()
