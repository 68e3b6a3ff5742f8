"""Figures of a fit, as matplotlib figures that belong to no window: what they show comes in, a Figure comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from scipy.spatial.distance import cdist
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.reports.style import BLUE, FAINT, GREY, LINES, STYLE, VERMILLION, canvas, single

Positions = NDArray[np.float64]

EDGES_UP_TO = 1500
NUMBERS_UP_TO = 20
SMOOTHING_STEPS = 100
FORCE_STEPS = 120
GRAVITY = 1.0
WIDE = 20  # times the smallest size, beyond which sizes are on a scale of ratios
REPELLING = 300


def loss_curves(rounds: Sequence[int], curves: Mapping[str, Sequence[float]], best_round: int | None = None) -> Figure:
    """Cross-entropy against rounds, one line for each name in ``curves``; ``best_round`` is marked."""
    for name, values in curves.items():
        require(
            len(values) == len(rounds), f"curves[{name!r}]", f"hold one loss per round ({len(rounds)})", len(values)
        )
    require(len(curves) <= len(LINES), "curves", f"be at most {len(LINES)}, one for each colour", len(curves))
    with rc_context(STYLE):
        figure, axes = single(6.4, 4.0)
        marker = "o" if len(rounds) == 1 else None
        for colour, (name, values) in zip(LINES, curves.items(), strict=False):
            axes.plot(rounds, values, color=colour, label=name, marker=marker)
        if best_round is not None:
            axes.axvline(best_round, color=GREY, linestyle="--", linewidth=1, label=f"best round ({best_round})")
        axes.set(xlabel="round", ylabel="loss", title="Loss after each round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
    return figure


def client_graph(graph: ClientGraph, correct: Tensor) -> Figure:
    """The graph of clients, coloured by the share of its test samples that each has right, ``correct [N]``.

    Clients with ``nan`` have no test sample and are grey. Edges are drawn for up to 1500 clients.
    """
    N = graph.num_clients
    require(correct.shape == (N,), "correct", f"have one entry per client ({N})", list(correct.shape))
    share, place = correct.detach().double().cpu().numpy(), layout(graph)
    with rc_context(STYLE):
        figure, axes = single(6.4, 5.6)
        axes.set_axis_off()
        axes.set_aspect("equal")
        if N <= EDGES_UP_TO:
            source, target = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].cpu().numpy()
            ends = np.stack([place[source], place[target]], 1)
            axes.add_collection(LineCollection(list(ends), colors=FAINT, linewidths=0.5, zorder=1))
        size, rim = float(np.clip(9000 / N, 5, 90)), 0.5 * (N <= EDGES_UP_TO)
        known = ~np.isnan(share)
        if not known.all():
            _points(axes, place[~known], size, color=FAINT, linewidths=0, label=f"no test sample ({N - known.sum()})")
        if not graph.loss.of_numbers and np.isin(share[known], (0, 1)).all():
            for value, colour, mark, name in ((1, BLUE, "o", "right"), (0, VERMILLION, "X", "wrong")):
                style = {"color": colour, "marker": mark, "edgecolors": "white", "linewidths": rim}
                here = place[share == value]
                _points(axes, here, size * (1 if value else 1.4), label=f"{name} ({len(here)})", **style)
        else:
            style = {"c": share[known], "cmap": "cividis", "edgecolors": "white", "linewidths": rim}
            points = _points(axes, place[known], size, **style)
            right, error = "share of a client's test samples that are right", "mean absolute error of a client"
            figure.colorbar(points, ax=axes, label=error if graph.loss.of_numbers else right, shrink=0.7)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=3, markerscale=max(1, (30 / size) ** 0.5))
        axes.set_title("Clients by their test predictions")
    return figure


def confusion_matrix(counts: Tensor, classes: Sequence[str]) -> Figure:
    """Samples by true class (rows) and predicted class (columns), ``[c, c]``, coloured by their share of the row."""
    c = len(classes)
    require(counts.shape == (c, c), "counts", f"be [{c}, {c}], one row and column per class", list(counts.shape))
    number = counts.cpu().numpy()
    share = number / np.maximum(number.sum(1, keepdims=True), 1)
    side = float(np.clip(2.2 + 0.55 * c, 3.6, 12))
    with rc_context(STYLE):
        figure, axes = single(side + 1, side)
        image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
        axes.grid(False)
        axes.set_xticks(range(c), classes, rotation=90 if max(map(len, classes)) > 6 and c > 3 else 0)
        axes.set_yticks(range(c), classes)
        if c <= NUMBERS_UP_TO:
            for row, column in np.ndindex(c, c):
                colour = "white" if share[row, column] > 0.5 else "black"
                axes.text(column, row, f"{number[row, column]}", ha="center", va="center", color=colour)
        axes.set(xlabel="predicted", ylabel="true", title="Test samples by class")
        figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.7)
    return figure


def predicted_against_true(y: Tensor, predicted: Tensor) -> Figure:
    """Predicted numbers against true ones ``[n]`` with the line on which they are the same, and residuals y − ŷ."""
    require(y.shape == predicted.shape, "predicted", f"have one entry per sample ({len(y)})", list(predicted.shape))
    true, found = y.double().cpu().numpy(), predicted.double().cpu().numpy()
    style = {"s": float(np.clip(9000 / max(len(true), 1), 2, 30)), "color": BLUE, "alpha": 0.5, "linewidths": 0}
    with rc_context(STYLE):
        figure = canvas(8.6, 4.2)
        axes, rest = figure.subplots(1, 2)
        axes.scatter(true, found, **style)
        ends = [min(true.min(), found.min()), max(true.max(), found.max())] if len(true) else [0, 1]
        axes.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="predicted = true")
        axes.set(xlabel="true", ylabel="predicted", title="Test samples")
        axes.legend()
        rest.axhline(0, color=GREY, linestyle="--", linewidth=1)
        rest.scatter(found, true - found, **style)
        rest.set(xlabel="predicted", ylabel="true − predicted", title="Residuals")
    return figure


def reliability(probability: Tensor, label: Tensor, bins: int = 10) -> Figure:
    """How often predictions ``[n, c]`` are right against how sure they are, in bins of equally many samples.

    Bars are Wilson's 95 % intervals, as if samples were independent.
    """
    sure, predicted = probability.double().max(1)
    right = predicted.eq(label).double().cpu().numpy()
    order = sure.cpu().numpy().argsort(kind="stable")
    parts = [part for part in np.array_split(order, min(bins, len(order))) if len(part)]
    x = np.array([sure.cpu().numpy()[part].mean() for part in parts])
    share, n = np.array([right[part].mean() for part in parts]), np.array([len(part) for part in parts])
    z = 1.96
    middle, reach = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low, high = (middle - reach) / (1 + z**2 / n), (middle + reach) / (1 + z**2 / n)
    with rc_context(STYLE):
        figure, axes = single(4.6, 4.2)
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        bars = np.maximum(0, [share - low, high - share])
        axes.errorbar(x, share, yerr=bars, color=BLUE, marker="o", elinewidth=1, capsize=2)
        least = float(x.min()) if len(x) else 0.0
        axes.set(xlim=(max(0, least - 0.05), 1), ylim=(0, 1.02), xlabel="probability of the predicted label")
        axes.set(ylabel="share that is right")
    return figure


def gain_by_size(size: NDArray[Any], gain: NDArray[Any], score: str) -> Figure:
    """Gain of each client against its training samples."""
    with rc_context(STYLE):
        figure, axes = single(6.4, 3.6)
        axes.axhline(0, color=GREY, linewidth=1)
        for chosen, colour, name in ((gain >= 0, BLUE, "gain"), (gain < 0, VERMILLION, "lose")):
            axes.scatter(
                size[chosen], gain[chosen], s=18, color=colour, label=f"{name} ({int(chosen.sum())})", zorder=2
            )
        axes.set(xlabel="training rows of a client", ylabel=f"gain in {score}")
        if len(size) and size.max() > WIDE * max(1, size.min()):
            axes.set_xscale("symlog" if size.min() < 1 else "log")
            axes.xaxis.set_major_formatter("{x:g}")
        axes.legend()
    return figure


def layout(graph: ClientGraph) -> Positions:
    """Places for the clients ``[N, 2]``: two smooth directions of the graph, then springs; always the same ones."""
    return places(adjacency_matrix(graph.edge_index.cpu().numpy(), graph.num_clients))


def places(A: csr_matrix) -> Positions:
    """Places for the nodes of a graph ``[N, 2]``, as :func:`layout` does."""
    draw = np.random.default_rng(0)
    return _springs(A, _smooth(A, draw), draw)


def _smooth(A: csr_matrix, draw: np.random.Generator) -> Positions:
    """Ranks of the clients in D̂^{-1/2} v₂ and D̂^{-1/2} v₃, v being eigenvectors of P = D̂^{-1/2}(A+I)D̂^{-1/2}.

    The subspace iteration stops long before it converges to a small component, and ranks spread what it piles up.
    """
    N = A.shape[0]
    root = np.sqrt(np.asarray(A.sum(1)).ravel() + 1)
    P = diags(1 / root) @ (A + diags(np.ones(N))) @ diags(1 / root)
    first = root / np.linalg.norm(root)
    X = draw.standard_normal((N, 2))
    for _ in range(SMOOTHING_STEPS if N > 2 else 0):
        X = (X + P @ X) / 2
        X -= first[:, None] * (first @ X)
        X = np.linalg.qr(X)[0]
    ranks = (X / root[:, None]).argsort(0).argsort(0)
    return (ranks + 0.5) / N * 2 - 1


def _springs(A: csr_matrix, place: Positions, draw: np.random.Generator) -> Positions:
    """Fruchterman and Reingold's forces: an edge pulls by distance²/l, two clients repel by l²/distance.

    A weak pull to the centre keeps components together. Clients repel from a sample of all, anew in each step, so
    that a step costs N times a constant.
    """
    N = len(place)
    length = 2 / np.sqrt(N)
    repelling = min(N, REPELLING)
    source, target = A.nonzero()
    for step in range(FORCE_STEPS):
        others = place[draw.choice(N, repelling, replace=False)]
        push = N / repelling * length**2 / np.maximum(cdist(place, others, "sqeuclidean"), 1e-4 * length**2)
        force = push.sum(1, keepdims=True) * place - push @ others
        along = place[target] - place[source]
        pull = along * np.linalg.norm(along, axis=1, keepdims=True) / length
        force += np.stack([np.bincount(source, pull[:, axis], N) for axis in (0, 1)], 1)
        force -= GRAVITY * place
        reach = 0.2 * (1 - step / FORCE_STEPS)
        size = np.linalg.norm(force, axis=1, keepdims=True)
        place = place + force * np.minimum(reach / np.maximum(size, 1e-12), 1)
    return place - place.mean(0)


def _points(axes: Axes, place: Positions, size: float, **style: Any) -> PathCollection:
    return axes.scatter(place[:, 0], place[:, 1], s=size, zorder=2, **style)
