"""A comparison as a page of HTML."""

from __future__ import annotations

import pandas as pd

from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.practice.comparison import Comparison
from gfl_lightning.practice.verdict import NAMES
from gfl_lightning.reports.page.graph_view import GraphView
from gfl_lightning.reports.page.page import Page
from gfl_lightning.reports.page.sections import Facts, Picture, Section, Table


def html_page(found: Comparison, command: str) -> Page:
    """Verdict, methods, figure, the deciding score by size, who loses, the client graph and how to repeat it."""
    graph, metric = found.graph, NAMES.get(found.metric, found.metric)
    clients = found.client_table()
    losing = clients[clients["gain"] < 0]
    gain = dict(zip(map(str, clients["client"]), clients["gain"], strict=True))
    names = [str(name) for name in found.names.clients]
    trained = graph.counts(graph.mask(Split.TRAIN)).tolist()
    shown = pd.DataFrame({"client": names, "rows": graph.counts().tolist(), "training_rows": trained})
    shown["gain"] = [gain.get(name, float("nan")) for name in names]
    note = (
        f"* needs all rows in one place. {found.about} "
        f"New clients: {metric} of clients that join after training, with rows and edges but no label."
    )
    sections: list[Section] = [
        Table("Methods", found.table(), note),
        Picture(f"{metric} of each method", found.figure()),
        Table(f"{metric} by a client's training rows", found.size_table()),
        Table(
            "Clients that lose by the graph",
            losing,
            f"{len(losing)} of {len(clients)} clients lose against FedAvg, by test loss in the mean over splits.",
        ),
        GraphView("Client graph", graph, shown, "gain"),
        Facts(
            "Settings",
            {
                "clients": graph.num_clients,
                "rows": graph.num_samples,
                "edges": graph.num_edges,
                "splits": found.seen,
                "repeat": command,
            },
        ),
    ]
    return Page("Does the graph help?", found.verdict, sections)
