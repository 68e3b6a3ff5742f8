"""What a fit leaves for people to look at: figures and the page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gfl_lightning.engine.evaluation import client_score
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.reports.figures import client_graph, loss_curves
from gfl_lightning.reports.fit_page import FitPage
from gfl_lightning.reports.page.graph_view import CLIENTS
from gfl_lightning.reports.page.page import write_page
from gfl_lightning.whole_files import whole_file


def write_figures(folder: Path, module: RoundModule, graph: ClientGraph) -> None:
    """Write ``loss_curves.png`` and, for graphs of up to 1500 clients, ``client_graph.png``."""
    train, val = zip(*module.curve, strict=True)
    rounds = range(1, len(module.curve) + 1)
    figures = {"loss_curves": loss_curves(rounds, {"train": train, "validation": val}, module.best.round or None)}
    if graph.num_clients <= CLIENTS and not graph.loss.of_numbers:
        figures["client_graph"] = client_graph(graph, client_score(graph, module.predict_logits().cpu()))
    for name, figure in figures.items():
        with whole_file(folder / f"{name}.png") as scratch:
            figure.savefig(scratch)


def write_fit_page(
    folder: Path,
    module: RoundModule,
    data: DataSet,
    summary: Mapping[str, Any],
    edges: str,
    arguments: list[str],
) -> None:
    """Write ``report.html`` of a fit whose best weights are the module's parameters.

    Args:
        folder: the run's.
        module: the model.
        data: what it was trained on.
        summary: the record of the fit.
        edges: what was found of the edges' signal.
        arguments: of the command line.
    """
    command = f"python -m gfl_lightning {shlex.join(arguments)}"
    content = FitPage(
        summary=summary,
        graph=data.graph,
        names=data.names,
        prediction=module.prediction(),
        curve=module.curve,
        features=data.feature_columns if summary["privacy"] is None else {},  # each would be a release
        predict=_predicting(module),
        edges=edges,
        command=command,
    )
    write_page(folder / "report.html", content.page())


def _predicting(module: RoundModule) -> Callable[[ClientGraph], Tensor]:
    """Outputs of the parameters on graphs of the same clients."""
    like, weights = next(module.parameters()), module.current_weights()

    def predict(graph: ClientGraph) -> Tensor:
        moved = graph.to(like.device).to(like.dtype)
        logits = module.predictor_on(moved).logits_of(weights, module.round_of_the_parameters())
        return logits[: graph.num_samples].cpu()

    return predict
