"""The figures of our own studies."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator

from gfl_lightning.reports.style import BLUE, GREEN, GREY, LINES, ORANGE, canvas, single
from gfl_lightning.studies.drawing import MARKS, Picture, legend_once, points, within_percent
from gfl_lightning.studies.our_tables import theory_terms
from gfl_lightning.studies.outcome import Outcome

ROUNDING = 1e-12


def cora(outcome: Outcome) -> list[Picture]:
    """Accuracy of each method."""
    rows = outcome.studies["cora"][::-1]
    figure, axes = single(6.4, 3.2)
    for place, row in enumerate(rows):
        values = [100 * value for value in outcome.values(row, "accuracy")]
        colour = BLUE if row.experiment.model == "GFL" else ORANGE
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.35, markersize=5)
        found = outcome.accuracy(row)
        if found is not None:
            axes.errorbar(found.mean, place + 0.22, xerr=found.half_width, **points(colour, "D"))
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set(xlabel="test accuracy (%)", ylim=(-0.5, len(rows) - 0.3))
    return [Picture("cora", "Cora with 2708 clients: each seed, and mean with 95 % interval above.", figure)]


def staleness(outcome: Outcome) -> list[Picture]:
    """Accuracy, mean ‖∇F‖² and σ_H² against I, a line for each estimator."""
    rows = outcome.studies["staleness"]
    figure = canvas(11.0, 3.8)
    grid = figure.subplots(1, 3)
    for place, estimator in enumerate(dict.fromkeys(row.label for row in rows)):
        some = [row for row in rows if row.label == estimator]
        x = [row.experiment.steps for row in some]
        style: dict[str, Any] = {"color": LINES[place], "marker": MARKS[place], "markersize": 5, "label": estimator}
        found = [outcome.accuracy(row) for row in some]
        means = [np.nan if one is None else one.mean for one in found]
        halves = [np.nan if one is None else one.half_width for one in found]
        grid[0].errorbar(x, means, yerr=halves, capsize=2, **style)
        within_percent(grid[0].get_ylim, grid[0].set_ylim)
        grid[1].plot(x, [np.mean(outcome.values(row, "grad_norm_squared")) for row in some], **style)
        if estimator != "exact":
            sigma = np.array([np.mean(outcome.values(row, "sigma_H_squared")) for row in some])
            grid[2].plot(x, np.where(sigma > ROUNDING, sigma, np.nan), **style)
    titles = ("test accuracy (%)", "mean of ‖∇F(W̄)‖² over rounds", "σ_H²")
    for axes, title in zip(grid, titles, strict=True):
        axes.set(xscale="log", xlabel="local updates I", title=title)
        axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    for axes in grid[1:]:
        axes.set_yscale("log")
    legend_once(figure, grid)
    caption = "Three estimators against I; σ_H² is 0 for the exact one, and for the compensated one at I = 1."
    return [Picture("staleness", caption, figure)]


def theory(outcome: Outcome) -> list[Picture]:
    """The left side of the bound and the terms of its right side, against T, I, N and λ_max."""
    rows = outcome.studies["theory"]
    figure = canvas(13.0, 3.9)
    grid = figure.subplots(1, 4)
    base = [row for row in rows if row.label == "I"]
    for place, row in enumerate((base[0], base[3], base[-1])):
        running = [record["measured"]["running"] for record in outcome.of(row) if "measured" in record]
        mean = np.mean([one["grad_norm_squared"] for one in running], axis=0)
        style: dict[str, Any] = {"color": (BLUE, GREEN, ORANGE)[place], "marker": "." if len(mean) == 1 else None}
        grid[0].plot(running[0]["updates"], mean, label=f"left side, I={row.experiment.steps}", **style)
    T = np.geomspace(1, base[0].experiment.updates, 20)
    grid[0].plot(T, 1 / (base[0].experiment.lr * T), color=GREY, linestyle="--", label="1/(ηT)")
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
        shown = [f"{value:.0f}" if value >= 1 else f"{value:.1g}" for value in values]
        axes.set_xticks(values, shown)
        axes.xaxis.set_minor_locator(NullLocator())
    legend_once(figure, grid[1:])
    caption = "The bound's left side (solid) and the terms of its right side without constants (dashed)."
    return [Picture("theory", caption, figure)]
