"""The client graph in a page: drag to move it, turn the wheel to enlarge it, point at a client to see its numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex

from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.reports.figures import layout
from gfl_lightning.reports.page.sections import Section, shown
from gfl_lightning.reports.style import FAINT

CLIENTS = 1500
SIZE = 1000


@dataclass(frozen=True, eq=False)
class GraphView(Section):
    """Clients as circles, coloured from dark (lowest) to light (highest) by a column of their table; grey without one.

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
        """An image of lines and circles, and the data that its script shows."""
        if self.graph.num_clients > CLIENTS:
            return f'<p class="note">{self.graph.num_clients} clients are too many to draw; up to {CLIENTS} are.</p>'
        place = layout(self.graph)
        place = (place - place.min(0)) / np.maximum(np.ptp(place, axis=0), 1e-9) * (SIZE - 40) + 20
        once = self.graph.edge_index[:, self.graph.edge_index[0] < self.graph.edge_index[1]].T.tolist()
        lines = "".join(
            f'<line x1="{place[a, 0]:.1f}" y1="{place[a, 1]:.1f}" x2="{place[b, 0]:.1f}" y2="{place[b, 1]:.1f}"/>'
            for a, b in once
        )
        radius = float(np.clip(140 / np.sqrt(len(place)), 3, 12))
        circles = "".join(
            f'<circle data-client="{k}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}"/>'
            for k, ((x, y), fill) in enumerate(zip(place, self._colours(), strict=True))
        )
        data = {"columns": [str(name) for name in self.table.columns], "edges": once, "rows": self._rows()}
        text = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
        return (
            f'<div class="graph"><svg viewBox="0 0 {SIZE} {SIZE}"><g class="edges">{lines}</g><g>{circles}</g></svg>'
            f'<div class="tip" hidden></div><script type="application/json">{text}</script></div>'
            f'<p class="note">Drag to move, turn the wheel to enlarge, point at a client to see its numbers. '
            f"Colour: {escape(self.colour.replace('_', ' '))}, dark is low, light is high, grey is unknown.</p>"
        )

    def _rows(self) -> list[list[str]]:
        return [[shown(value) for value in row] for row in self.table.itertuples(index=False)]

    def _colours(self) -> list[str]:
        value = self.table[self.colour].to_numpy(dtype=np.float64)
        known = value[~np.isnan(value)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        scaled = (value - low) / max(high - low, 1e-12)
        return [FAINT if np.isnan(one) else to_hex(colormaps["cividis"](float(one))) for one in scaled]
