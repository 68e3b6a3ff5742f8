"""The figures of the paper's studies."""

from __future__ import annotations

from typing import Any

import numpy as np

from gfl_lightning.reports.style import BLUE, GREY, LINES, VERMILLION, canvas, single
from gfl_lightning.studies.drawing import MARKS, SMALL, Picture, legend_once, loss_band, points, within_percent
from gfl_lightning.studies.outcome import Outcome, published
from gfl_lightning.studies.published import COLUMNS, NOISE_LEVELS


def summary(outcome: Outcome) -> list[Picture]:
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
                axes.errorbar(found.mean, y + 0.13, xerr=found.half_width, **points(BLUE, "o"), label="measured")
            theirs = points(VERMILLION, "D") | {"markerfacecolor": "white"}
            axes.errorbar(printed.mean, y - 0.13, xerr=printed.half_width, **theirs, label="published")
            if printed.erratum is not None:
                axes.annotate("misprint", (printed.mean, y - 0.13), (0, -9), **SMALL)
        axes.set(title=column, xlabel="test accuracy (%)", yticks=range(len(labels)), ylim=(-0.6, len(labels) - 0.4))
        axes.set_yticklabels(labels)
        within_percent(axes.get_xlim, axes.set_xlim)
    legend_once(figure, grid)
    return [Picture("summary", "Test accuracy, measured and published, with 95 % intervals.", figure)]


def curves(outcome: Outcome) -> list[Picture]:
    """Training and validation loss against updates, a column for each data set."""
    rows = outcome.studies["curves"]
    columns = [column for column in COLUMNS if any(row.column == column for row in rows)]
    figure = canvas(3.2 * len(columns), 5.2)
    grid = figure.subplots(2, len(columns), sharex="col", squeeze=False)
    for place, column in enumerate(columns):
        for line, row in enumerate(row for row in rows if row.column == column):
            label = row.label.removeprefix("GFL-APPNP ")
            for axes, name in ((grid[0, place], "train"), (grid[1, place], "val")):
                loss_band(axes, outcome, row, name, LINES[line], label)
        grid[0, place].set_title(column)
        grid[1, place].set_xlabel("updates")
    grid[0, 0].set_ylabel("training loss")
    grid[1, 0].set_ylabel("validation loss")
    legend_once(figure, grid.flat)
    return [Picture("curves", "Loss against updates, mean and 95 % band over repetitions.", figure)]


def necessity(outcome: Outcome) -> list[Picture]:
    """Box plots over repetitions, and over clients."""
    rows = outcome.studies["necessity"]
    figure = canvas(8.4, 4.0)
    left, right = figure.subplots(1, 2, sharey=False)
    over_repetitions = [[100 * value for value in outcome.values(row, "accuracy")] for row in rows]
    shares = [
        np.array([one["per_client"] for one in outcome.of(row) if not one["diverged"]], dtype=float) for row in rows
    ]
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


def connectivity(outcome: Outcome) -> list[Picture]:
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
    axes.errorbar(x, y, yerr=half, **points(BLUE, "o") | {"linestyle": "-"})
    axes.set(xscale="log", xlabel="λ_max(B_N L†)", ylabel="test accuracy (%)")
    axes.margins(x=0.2)
    within_percent(axes.get_ylim, axes.set_ylim)
    return [Picture("connectivity", "Accuracy on four SC graphs against their connectivity, I = 10.", figure)]


def graphs(outcome: Outcome) -> list[Picture]:
    """Accuracy on each draw of the DNC graph."""
    rows = [row for row in outcome.studies["dnc"] if row.column.startswith("graph")]
    figure, axes = single(6.4, 4.0)
    for place, label in enumerate(dict.fromkeys(row.label for row in rows)):
        some = [(row, outcome.accuracy(row)) for row in rows if row.label == label]
        x = [int(row.column.removeprefix("graph ")) for row, found in some if found]
        means, halves = [f.mean for _, f in some if f], [f.half_width for _, f in some if f]
        axes.errorbar(x, means, yerr=halves, **points(LINES[place], MARKS[place]), label=label)
        axes.axhline(float(np.mean(means)), color=LINES[place], linewidth=1, linestyle="--")
    axes.set(xlabel="graph seed", ylabel="test accuracy (%)", xticks=range(10))
    within_percent(axes.get_ylim, axes.set_ylim)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    caption = "DNC accuracy on ten draws of the graph; dashed: mean over graphs."
    return [Picture("graphs", caption, figure)]


def noise(outcome: Outcome) -> list[Picture]:
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
    axes.set_ylim(0, min(100, axes.get_ylim()[1]))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5)
    curves = canvas(3.4 * len(labels), 5.2)
    grid = curves.subplots(2, len(labels), sharex=True, sharey="row", squeeze=False)
    for place, label in enumerate(labels):
        for line, level in enumerate(NOISE_LEVELS):
            row = rows[label, f"SD {level:g}"]
            for one, name in ((grid[0, place], "train"), (grid[1, place], "val")):
                loss_band(one, outcome, row, name, LINES[line], f"SD {level:g}")
        grid[0, place].set_title(label)
        grid[1, place].set_xlabel("updates")
    grid[0, 0].set_ylabel("training loss")
    grid[1, 0].set_ylabel("validation loss")
    legend_once(curves, grid.flat)
    return [
        Picture("dp_accuracy", "Accuracy on subCora against the standard deviation of the noise.", bars),
        Picture("dp_curves", "Loss against updates under noise, mean and 95 % band over repetitions.", curves),
    ]
