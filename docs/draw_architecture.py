"""Draws docs/images/architecture.png: the rooms with their dependencies, and the data flow of a round."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

ROOMS = [
    ["studies"],
    ["callbacks"],
    ["lit"],
    ["reports"],
    ["baselines", "theory"],
    ["federated"],
    ["engine"],
    ["models", "privacy"],
    ["graphs"],
]
TEXTS = {
    "studies": "every table and figure",
    "callbacks": "DP noise, budget, W&B",
    "lit": "the only room that knows Lightning",
    "reports": "summary, figures, predictions",
    "baselines": "networks, MLPs",
    "theory": "κ², $σ_H^2$, $λ_{max}$",
    "federated": "the method: protocol, exchange, local, server, protection",
    "engine": "the contract: start, round, logits, metrics",
    "models": "$Ψ_h$, $Ψ_G$",
    "privacy": "mechanisms, account",
    "graphs": "client graph, data sets, tables, Ã",
}
BLUE, GREEN, GREY = "#dbe9f6", "#e3f1df", "#f2f2f2"


def box(axes: Axes, x: float, y: float, w: float, h: float, title: str, text: str, colour: str) -> None:
    """A rounded box with a title and a line below it."""
    axes.add_patch(FancyBboxPatch((x, y), w, h, boxstyle="round,pad=0.02", facecolor=colour, edgecolor="#555555"))
    axes.text(x + w / 2, y + 0.66 * h, title, ha="center", va="center", fontsize=10, weight="bold")
    axes.text(x + w / 2, y + 0.28 * h, text, ha="center", va="center", fontsize=7.5)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", dx: float = 0.1) -> None:
    """An arrow with a text beside it."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#333333"})
    axes.text((start[0] + end[0]) / 2 + dx, (start[1] + end[1]) / 2, text, fontsize=8, va="center")


def rooms(axes: Axes) -> None:
    """One layer on another; arrows point to what is imported."""
    axes.set_title("Rooms: dependencies point down", fontsize=11)
    for level, names in enumerate(ROOMS):
        y, width = (len(ROOMS) - level) * 1.0, 6.0 / len(names) - 0.15 * (len(names) - 1)
        for place, name in enumerate(names):
            colour = BLUE if level <= 2 else GREEN if name in ("federated", "engine") else GREY
            box(axes, place * (width + 0.3), y, width, 0.72, name, TEXTS[name], colour)
        if level:
            arrow(axes, (3.0, y + 0.98), (3.0, y + 0.75))
    axes.set_xlim(-0.2, 6.3)
    axes.set_ylim(0.8, len(ROOMS) + 0.9)
    axes.axis("off")


def a_round(axes: Axes) -> None:
    """The three steps of a round between clients and server."""
    axes.set_title("A round: state → state, by messages alone", fontsize=11)
    box(axes, 0, 7.2, 2.6, 1.2, "client k", "own samples, $W_k$", GREEN)
    box(axes, 5.2, 7.2, 2.6, 1.2, "server", "W̄, Ã, uploads", BLUE)
    steps = [
        (6.4, "1  local steps", "I steps; $C_k$ and $∇C_k$ fixed", 0, "federated/local"),
        (4.6, "2  average", "$W̃ = \\sum_k v_k W_k$, optimizer", 5.2, "federated/server"),
        (2.2, "3  exchange", "$ĥ_j$, $∇ĥ_j$ and metrics at W̄", 0, "federated/exchange"),
    ]
    for y, title, text, x, room in steps:
        box(axes, x, y - 0.9, 2.6, 1.1, title, text, GREY)
        axes.text(x + 1.3, y - 1.12, room, ha="center", fontsize=7, style="italic")
    arrow(axes, (2.7, 5.9), (5.1, 4.5), "$W_k$, protected", 0.15)
    arrow(axes, (5.1, 3.9), (2.7, 2.0), "W̄", -0.35)
    arrow(axes, (2.7, 1.5), (5.1, 1.5))
    axes.text(3.9, 1.62, "$ĥ_j$, $∇ĥ_j$, protected", ha="center", fontsize=8)
    box(axes, 5.2, 0.95, 2.6, 1.1, "aggregate", "$C_k = \\sum_{j≠k} Ã_{kj} ĥ_j$, $∇C_k$", GREY)
    axes.plot([7.85, 8.4, 8.4, -0.35, -0.35], [1.5, 1.5, 0.45, 0.45, 6.0], color="#333333", linewidth=1)
    arrow(axes, (-0.35, 6.0), (-0.02, 6.0))
    axes.text(3.9, 0.2, "$C_k$, $∇C_k$ and W̄ begin the next round", ha="center", fontsize=8)
    axes.set_xlim(-0.6, 8.6)
    axes.set_ylim(0, 8.7)
    axes.axis("off")


def main() -> None:
    """Write the picture."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6.5), width_ratios=(1, 1.2))
    rooms(left)
    a_round(right)
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "images" / "architecture.png", dpi=110)


if __name__ == "__main__":
    main()
