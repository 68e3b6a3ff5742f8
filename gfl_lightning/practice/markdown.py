"""A comparison as a page of Markdown."""

from __future__ import annotations

import pandas as pd

from gfl_lightning.practice.comparison import Comparison
from gfl_lightning.practice.verdict import NAMES


def page(found: Comparison, command: str) -> str:
    """Verdict, table of methods, the deciding score by size, and who loses."""
    graph, metric = found.graph, NAMES.get(found.metric, found.metric)
    clients = found.client_table()
    losing = clients[clients["gain"] < 0]
    named = ", ".join(str(name) for name in losing["client"].head(10))
    parts = [
        f"**{found.verdict}**",
        f"{graph.num_clients} clients, {graph.num_samples} rows, {graph.num_edges} edges; {found.seen}. `{command}`",
        table(found.table()),
        f"\\* needs all rows in one place. {found.about} "
        f"*New clients*: {metric} of clients that join after training, with rows and edges but no label. "
        f"*Graph gains*: what the graph gains in {metric} over the method, split by split; negative where it loses.",
        f"{metric} by a client's training rows:",
        table(found.size_table().set_index("clients").T.rename_axis("").reset_index()),
        f"{len(losing)} of {len(clients)} clients lose by the graph against FedAvg, on their test rows in the mean"
        + (f"; most: {named}." if named else "."),
    ]
    return "\n\n".join(parts) + "\n"


def table(frame: pd.DataFrame) -> str:
    """A frame of texts as a table."""
    lines = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    lines += [[str(cell) for cell in row] for row in frame.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
