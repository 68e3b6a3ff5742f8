"""The figures of the studies, in the style of all figures: what was found comes in, matplotlib figures come out."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from gfl_lightning.lit.style import BLUE, GREEN, GREY, LINES, ORANGE, STYLE, VERMILLION, canvas, single
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.outcome import Outcome, published
from gfl_lightning.studies.page import theory_terms
from gfl_lightning.studies.published import COLUMNS, NOISE_LEVELS
from gfl_lightning.studies.statistics import band
from gfl_lightning.studies.store import write_bytes

SVG = {"svg.hashsalt": "gfl_lightning"}
MARKS = ("o", "s", "^", "D", "v")


class Picture(NamedTuple):
    """A figure with the name of its files and its caption."""

    name: str
    caption: str
    figure: Figure


def pictures(outcome: Outcome) -> dict[str, list[Picture]]:
    """Every figure that the studies of an outcome have, by study."""
    makers: dict[str, Callable[[Outcome], list[Picture]]] = {
        "dnc": _graphs,
        "dp": _noise,
        "connectivity": _connectivity,
        "necessity": _necessity,
        "curves": _curves,
        "cora": _cora,
        "staleness": _staleness,
        "theory": _theory,
        "privacy": _privacy,
    }
    with rc_context(STYLE):
        found = {study: makers[study](outcome) for study in outcome.studies if study in makers}
        if outcome.summary:
            found["summary"] = _summary(outcome)
        if outcome.quick:
            for picture in (picture for some in found.values() for picture in some):
                picture.figure.suptitle("quick run: not a result", color=VERMILLION, fontsize=9, x=0.01, ha="left")
    return found


def save(picture: Picture, folder: Path) -> None:
    """Write ``name.png`` and ``name.svg``; the same figure gives the same bytes."""
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with rc_context(STYLE | SVG):
            picture.figure.savefig(buffer, format=kind, metadata=metadata)
        write_bytes(folder / f"{picture.name}.{kind}", buffer.getvalue())


def _summary(outcome: Outcome) -> list[Picture]:
    """Ours and the published numbers side by side, a panel for each data set."""
    columns = [column for column in COLUMNS if any(row.column == column for row in outcome.summary)]
    figure = canvas(3.1 * len(columns) + 1.2, 4.2)
    labels = list(dict.fromkeys(row.label for row in outcome.summary))[::-1]
    grid = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, column in zip(grid, columns, strict=True):
        for row in (row for row in outcome.summary if row.column == column):
            y, found, printed = labels.index(row.label), outcome.accuracy(row), published("summary", row)
            assert printed is not None
            if found is not None:
                axes.errorbar(found.mean, y + 0.13, xerr=found.half_width, **_points(BLUE, "o"), label="measured")
            theirs = _points(VERMILLION, "D") | {"markerfacecolor": "white"}
            axes.errorbar(printed.mean, y - 0.13, xerr=printed.half_width, **theirs, label="published")
            if printed.erratum is not None:
                axes.annotate("misprint", (printed.mean, y - 0.13), (0, -9), **_SMALL)
        axes.set(title=column, xlabel="test accuracy (%)", yticks=range(len(labels)), ylim=(-0.6, len(labels) - 0.4))
        axes.set_yticklabels(labels)
        _within_percent(axes.get_xlim, axes.set_xlim)
    _legend_once(figure, grid)
    return [Picture("summary", "Test accuracy, measured and published, with 95 % intervals.", figure)]


def _curves(outcome: Outcome) -> list[Picture]:
    """Training and validation loss against updates, a column for each data set."""
    rows = outcome.studies["curves"]
    columns = [column for column in COLUMNS if any(row.column == column for row in rows)]
    figure = canvas(3.2 * len(columns), 5.2)
    grid = figure.subplots(2, len(columns), sharex="col", squeeze=False)
    for place, column in enumerate(columns):
        for line, row in enumerate(row for row in rows if row.column == column):
            label = row.label.removeprefix("GFL-APPNP ")
            for axes, name in ((grid[0, place], "train"), (grid[1, place], "val")):
                _loss(axes, outcome, row, name, LINES[line], label)
        grid[0, place].set_title(column)
        grid[1, place].set_xlabel("updates")
    grid[0, 0].set_ylabel("training loss")
    grid[1, 0].set_ylabel("validation loss")
    _legend_once(figure, grid.flat)
    return [Picture("curves", "Loss against updates, mean and 95 % band over repetitions.", figure)]


def _necessity(outcome: Outcome) -> list[Picture]:
    """Box plots over repetitions, and over clients."""
    rows = outcome.studies["necessity"]
    figure = canvas(8.4, 4.0)
    left, right = figure.subplots(1, 2, sharey=False)
    over_repetitions = [[100 * value for value in outcome.values(row, "accuracy")] for row in rows]
    shares = [np.array([record["per_client"] for record in outcome.of(row)], dtype=float) for row in rows]
    for axes, values, title in (
        (left, over_repetitions, "a box over repetitions"),
        (right, [100 * share.mean(0) for share in shares], "a box over clients"),
    ):
        boxes = axes.boxplot(values, widths=0.55, patch_artist=True, medianprops={"color": "black"})
        for box, colour in zip(boxes["boxes"], LINES, strict=False):
            box.set(facecolor=colour, alpha=0.55)
        axes.set_xticks(range(1, len(rows) + 1), [row.label for row in rows])
        axes.set(title=title, ylabel="test accuracy (%)")
        axes.grid(axis="x", visible=False)
    return [Picture("necessity", "Accuracy on SC with and without the graph.", figure)]


def _connectivity(outcome: Outcome) -> list[Picture]:
    """Accuracy against λ_max with error bars."""
    figure, axes = single(5.6, 4.0)
    x, y, half = [], [], []
    for row in outcome.studies["connectivity"]:
        found = outcome.accuracy(row)
        if found is not None:
            x.append(outcome.values(row, "lambda_max")[0])
            y.append(found.mean)
            half.append(found.half_width)
            axes.annotate(row.column, (x[-1], y[-1]), (5, 9), textcoords="offset points", fontsize=9)
    axes.errorbar(x, y, yerr=half, **_points(BLUE, "o") | {"linestyle": "-"})
    axes.set(xscale="log", xlabel="λ_max(B_N L†)", ylabel="test accuracy (%)")
    axes.margins(x=0.2)
    _within_percent(axes.get_ylim, axes.set_ylim)
    return [Picture("connectivity", "Accuracy on four SC graphs against their connectivity, I = 10.", figure)]


def _graphs(outcome: Outcome) -> list[Picture]:
    """Accuracy on each draw of the DNC graph."""
    rows = [row for row in outcome.studies["dnc"] if row.column.startswith("graph")]
    figure, axes = single(6.4, 4.0)
    for place, label in enumerate(dict.fromkeys(row.label for row in rows)):
        some = [(row, outcome.accuracy(row)) for row in rows if row.label == label]
        x = [int(row.column.removeprefix("graph ")) for row, found in some if found]
        means, halves = [f.mean for _, f in some if f], [f.half_width for _, f in some if f]
        axes.errorbar(x, means, yerr=halves, **_points(LINES[place], MARKS[place]), label=label)
        axes.axhline(float(np.mean(means)), color=LINES[place], linewidth=1, linestyle="--")
    axes.set(xlabel="graph seed", ylabel="test accuracy (%)", xticks=range(10))
    _within_percent(axes.get_ylim, axes.set_ylim)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    caption = "DNC accuracy on ten draws of the graph; dashed: mean over graphs."
    return [Picture("graphs", caption, figure)]


def _noise(outcome: Outcome) -> list[Picture]:
    """Accuracy against the noise's standard deviation as bars, and loss curves for each."""
    rows = {(row.label, row.column): row for row in outcome.studies["dp"]}
    for steps in (10, 20):
        rows[f"I={steps} hn_gn", "SD 0"] = rows[f"I={steps} hn", "SD 0"]
    labels = list(dict.fromkeys(label for label, _ in rows))
    bars, axes = single(8.0, 4.2)
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        found = [outcome.accuracy(rows[label, f"SD {level:g}"]) for level in NOISE_LEVELS]
        x = np.arange(len(NOISE_LEVELS)) + (place - (len(labels) - 1) / 2) * width
        heights = [np.nan if one is None else one.mean for one in found]
        halves = [np.nan if one is None else one.half_width for one in found]
        style: dict[str, Any] = {"ecolor": GREY, "capsize": 2, "elinewidth": 1}
        axes.bar(x, heights, width * 0.92, yerr=halves, color=LINES[place], label=label, error_kw=style)
        printed = [published("dp", rows[label, f"SD {level:g}"]) for level in NOISE_LEVELS]
        axes.plot(x, [np.nan if p is None else p.mean for p in printed], "D", color="black", markersize=4, mfc="white")
    axes.plot([], [], "D", color="black", markersize=4, mfc="white", label="published")
    axes.set_xticks(range(len(NOISE_LEVELS)), [f"{level:g}" for level in NOISE_LEVELS])
    axes.set(xlabel="standard deviation of the noise", ylabel="test accuracy (%)")
    lowest = min(bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle))
    _within_percent(lambda: (lowest - 12, axes.get_ylim()[1]), axes.set_ylim)
    axes.grid(axis="x", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5)
    curves = canvas(3.4 * len(labels), 5.2)
    grid = curves.subplots(2, len(labels), sharex=True, sharey="row", squeeze=False)
    for place, label in enumerate(labels):
        for line, level in enumerate(NOISE_LEVELS):
            row = rows[label, f"SD {level:g}"]
            for one, name in ((grid[0, place], "train"), (grid[1, place], "val")):
                _loss(one, outcome, row, name, LINES[line], f"SD {level:g}")
        grid[0, place].set_title(label)
        grid[1, place].set_xlabel("updates")
    grid[0, 0].set_ylabel("training loss")
    grid[1, 0].set_ylabel("validation loss")
    _legend_once(curves, grid.flat)
    return [
        Picture("dp_accuracy", "Accuracy on subCora against the standard deviation of the noise.", bars),
        Picture("dp_curves", "Loss against updates under noise, mean and 95 % band over repetitions.", curves),
    ]


def _cora(outcome: Outcome) -> list[Picture]:
    """Accuracy of each method."""
    rows = outcome.studies["cora"][::-1]
    figure, axes = single(6.4, 3.2)
    for place, row in enumerate(rows):
        values = [100 * value for value in outcome.values(row, "accuracy")]
        colour = BLUE if row.method.kind == "gfl" else ORANGE
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=5)
        found = outcome.accuracy(row)
        if found is not None:
            axes.errorbar(found.mean, place + 0.22, xerr=found.half_width, **_points(colour, "D"))
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set(xlabel="test accuracy (%)", ylim=(-0.5, len(rows) - 0.3))
    return [Picture("cora", "Cora with 2708 clients: each seed, and mean with 95 % interval above.", figure)]


def _staleness(outcome: Outcome) -> list[Picture]:
    """Accuracy, mean ‖∇F‖² and σ_H² against I, a line for each estimator."""
    rows = outcome.studies["staleness"]
    figure = canvas(11.0, 3.8)
    grid = figure.subplots(1, 3)
    for place, estimator in enumerate(dict.fromkeys(row.label for row in rows)):
        some = [row for row in rows if row.label == estimator]
        x = [row.method.steps for row in some]
        style: dict[str, Any] = {"color": LINES[place], "marker": MARKS[place], "markersize": 5, "label": estimator}
        found = [outcome.accuracy(row) for row in some]
        means = [np.nan if one is None else one.mean for one in found]
        halves = [np.nan if one is None else one.half_width for one in found]
        grid[0].errorbar(x, means, yerr=halves, capsize=2, **style)
        _within_percent(grid[0].get_ylim, grid[0].set_ylim)
        grid[1].plot(x, [np.mean(outcome.values(row, "grad_norm_squared")) for row in some], **style)
        if estimator != "exact":
            grid[2].plot(x, [np.mean(outcome.values(row, "sigma_H_squared")) for row in some], **style)
    titles = ("test accuracy (%)", "mean of ‖∇F(W̄)‖² over rounds", "σ_H²")
    for axes, title in zip(grid, titles, strict=True):
        axes.set(xscale="log", xlabel="local updates I", title=title)
        axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    for axes in grid[1:]:
        axes.set_yscale("log")
    _legend_once(figure, grid)
    caption = "Three estimators against the number of local updates (σ_H² of the exact one is 0)."
    return [Picture("staleness", caption, figure)]


def _theory(outcome: Outcome) -> list[Picture]:
    """The left side of the bound and the terms of its right side, against T, I, N and λ_max."""
    rows = outcome.studies["theory"]
    figure = canvas(13.0, 3.9)
    grid = figure.subplots(1, 4)
    base = [row for row in rows if row.label == "I"]
    for place, row in enumerate((base[0], base[3], base[-1])):
        running = [record["measured"]["running"] for record in outcome.of(row) if "measured" in record]
        mean = np.mean([one["grad_norm_squared"] for one in running], axis=0)
        style: dict[str, Any] = {"color": (BLUE, GREEN, ORANGE)[place], "marker": "." if len(mean) == 1 else None}
        grid[0].plot(running[0]["updates"], mean, label=f"left side, I={row.method.steps}", **style)
    T = np.geomspace(1, base[0].method.updates, 20)
    grid[0].plot(T, 1 / (base[0].method.lr * T), color=GREY, linestyle="--", label="1/(ηT)")
    grid[0].set(xscale="log", yscale="log", xlabel="T")
    grid[0].legend(fontsize=8)
    names = {
        "left": "left side: (1/T) Σ ‖∇F‖²",
        "start": "1/(ηT)",
        "batches": "I²η²σ_G²/N",
        "staleness": "I²η²σ_H²",
        "neighbours": "I²η²κ²λ_max/N",
    }
    for axes, (sweep, label) in zip(grid[1:], (("I", "I"), ("N", "N"), ("degree", "λ_max(B_N L†)")), strict=True):
        some = [(float(row.column), theory_terms(outcome, row)) for row in rows if row.label == sweep]
        some = [(terms["lambda_max"] if sweep == "degree" else value, terms) for value, terms in some]
        some.sort(key=lambda pair: pair[0])
        for place, (name, text) in enumerate(names.items()):
            colour = "black" if name == "left" else LINES[place - 1]
            mark: dict[str, Any] = {
                "linestyle": "-" if name == "left" else "--",
                "marker": MARKS[place],
                "markersize": 4,
            }
            axes.plot([x for x, _ in some], [terms[name] for _, terms in some], color=colour, label=text, **mark)
        axes.set(xscale="log", yscale="log", xlabel=label)
        values = [x for x, _ in some]
        axes.set_xticks(values, [f"{value:.2g}" for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
    _legend_once(figure, grid[1:])
    caption = "The bound's left side (solid) and the terms of its right side without constants (dashed)."
    return [Picture("theory", caption, figure)]


def _privacy(outcome: Outcome) -> list[Picture]:
    """Accuracy against ε, a line for each method; dashed: without protection."""
    rows = outcome.studies["privacy"]
    figure, axes = single(6.4, 4.0)
    for place, label in enumerate(dict.fromkeys(row.label for row in rows)):
        some = [(row, outcome.accuracy(row)) for row in rows if row.label == label]
        private = [(row.method.epsilon, found) for row, found in some if row.method.epsilon and found is not None]
        style = _points(LINES[place], MARKS[place]) | {"linestyle": "-", "label": label}
        halves = [found.half_width for _, found in private]
        axes.errorbar([e for e, _ in private], [found.mean for _, found in private], yerr=halves, **style)
        for found in (found for row, found in some if not row.method.epsilon and found is not None):
            axes.axhline(found.mean, color=LINES[place], linewidth=1, linestyle="--")
    axes.set(xscale="log", xlabel="ε (δ = 10⁻⁵)", ylabel="test accuracy (%)")
    _within_percent(axes.get_ylim, axes.set_ylim)
    _legend_once(figure, [axes])
    return [Picture("privacy", "Accuracy against ε; dashed: the same method without protection.", figure)]


def _loss(axes: Axes, outcome: Outcome, row: Row, name: str, colour: str, label: str) -> None:
    """A mean loss curve with its 95 % band."""
    curves = [record["curves"] for record in outcome.of(row) if not record["diverged"]]
    if not curves:
        return
    x = curves[0]["updates"]
    mean, half = band(np.array([curve[name] for curve in curves], dtype=float))
    axes.plot(x, mean, color=colour, label=label, linewidth=1.3)
    if len(curves) > 1:
        axes.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)


_SMALL: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "ha": "center", "color": GREY}


def _within_percent(limits: Callable[[], tuple[float, float]], put: Callable[..., object]) -> None:
    """Keep an axis of percentages within 0 … 100, however wide an interval is."""
    low, high = limits()
    put(max(0, low), min(100, high))


def _points(colour: str, mark: str) -> dict[str, Any]:
    return {"color": colour, "marker": mark, "linestyle": "none", "markersize": 5, "capsize": 2, "elinewidth": 1.2}


def _legend_once(figure: Figure, grid: Iterable[Axes]) -> None:
    """One legend above all panels, each label once."""
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=len(handles))
