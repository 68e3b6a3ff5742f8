"""The client graph in a page: drag to move it, turn the wheel to enlarge it, point at a client to see its numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex
from scipy.sparse import csr_matrix, triu
from scipy.sparse.csgraph import breadth_first_order

from gfl_lightning.graphs.adjacency import adjacency_matrix
from gfl_lightning.graphs.arrays import Index
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.reports.figures import places
from gfl_lightning.reports.page.sections import Section, heading, shown
from gfl_lightning.reports.style import FAINT

CLIENTS = 1500
SIZE = 1000
SCALE = "cividis"


@dataclass(frozen=True, eq=False)
class GraphView(Section):
    """Clients as circles, coloured from dark (lowest) to light (highest) by a column of their table; grey without one.

    Of more than 1500 clients it shows those that are fewest steps from the one with the most neighbours.

    Args:
        title: of the section.
        graph: the client graph.
        table: a row for each of the N clients in their order: ``client``, its name, and what pointing at it shows.
        colour: the column that colours it.
    """

    title: str
    graph: ClientGraph
    table: pd.DataFrame
    colour: str

    def html(self) -> str:
        """An image of lines and circles, a legend, a field to find a client by, and the data that its script shows."""
        A = adjacency_matrix(self.graph.edge_index.cpu().numpy(), self.graph.num_clients)
        drawn = nearest_to_the_middle(A, CLIENTS)
        part, table = A[drawn][:, drawn], self.table.iloc[drawn]
        place = places(part)
        place = (place - place.min(0)) / np.maximum(np.ptp(place, axis=0), 1e-9) * (SIZE - 40) + 20
        once = np.stack(triu(part, 1).nonzero(), 1).tolist()
        lines = "".join(
            f'<line x1="{place[a, 0]:.1f}" y1="{place[a, 1]:.1f}" x2="{place[b, 0]:.1f}" y2="{place[b, 1]:.1f}"/>'
            for a, b in once
        )
        radius = float(np.clip(140 / np.sqrt(len(place)), 3, 12))
        colours, legend = self._colours(table)
        circles = "".join(
            f'<circle data-client="{k}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}"/>'
            for k, ((x, y), fill) in enumerate(zip(place, colours, strict=True))
        )
        rows = [[shown(value) for value in row] for row in table.itertuples(index=False)]
        data = {"columns": [heading(name) for name in table.columns], "edges": once, "rows": rows}
        data["degree"] = np.diff(A.indptr)[drawn].tolist()
        text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")  # nothing in it ends or opens a tag
        left = "" if len(drawn) == len(A.indptr) - 1 else self._left_out(len(drawn))
        return (
            f'<div class="graph"><p class="tools"><input type="search" placeholder="find a client" '
            f'aria-label="find a client"> <button type="button" data-zoom="0.7">+</button> '
            f'<button type="button" data-zoom="1.43">−</button> <button type="button" data-zoom="0">all</button></p>'
            f'<svg viewBox="0 0 {SIZE} {SIZE}"><g class="edges">{lines}</g><g>{circles}</g></svg>'
            f'<div class="tip" hidden></div><script type="application/json">{text}</script></div>{legend}'
            f'<p class="note">{left}Drag to move, turn the wheel or use the buttons to enlarge, point at a client or '
            f"touch it to see its numbers.</p>"
        )

    def _left_out(self, drawn: int) -> str:
        return (
            f"{drawn} of {self.graph.num_clients} clients, those that are fewest steps from the one with the most "
            "neighbours; neighbours that are not drawn are counted. "
        )

    def _colours(self, table: pd.DataFrame) -> tuple[list[str], str]:
        """Fill of each client, and a scale that says what it means."""
        value = table[self.colour].to_numpy(dtype=np.float64)
        known = value[~np.isnan(value)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        scaled = (value - low) / max(high - low, 1e-12)
        fills = [FAINT if np.isnan(one) else to_hex(colormaps[SCALE](float(one))) for one in scaled]
        unknown = f'<span class="dot" style="background: {FAINT}"></span> unknown'
        if not len(known):
            return fills, f'<p class="note">{unknown}</p>'
        stops = ", ".join(to_hex(colormaps[SCALE](part)) for part in np.linspace(0, 1, 5))
        bar = f'<span class="scale" style="background: linear-gradient(to right, {stops})"></span>'
        named = f"{escape(heading(self.colour))}: {shown(float(low))} {bar} {shown(float(high))}"
        return fills, f'<p class="note">{named} {unknown if len(known) < len(value) else ""}</p>'


def nearest_to_the_middle(A: csr_matrix, most: int) -> Index:
    """Numbers of up to so many nodes, ascending: in order of steps from one of the highest degree, piece by piece."""
    N = A.shape[0]
    found = np.zeros(N, dtype=bool)
    if most >= N:
        return np.arange(N)
    for start in np.diff(A.indptr).argsort(kind="stable")[::-1]:
        if not found[start]:
            reached = breadth_first_order(A, start, directed=False, return_predecessors=False)
            found[reached[: most - int(found.sum())]] = True
        if found.sum() >= most:
            break
    return np.flatnonzero(found)
