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
from gfl_lightning.lit.rivals import rivals_of
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.reports.figures import client_graph, loss_curves
from gfl_lightning.reports.fit_page import FitPage
from gfl_lightning.reports.page.graph_view import CLIENTS
from gfl_lightning.reports.page.page import write_page
from gfl_lightning.reports.rivals import Rivals
from gfl_lightning.whole_files import whole_file


def write_figures(folder: Path, module: RoundModule, graph: ClientGraph) -> None:
    """Write ``loss_curves.png`` and, for graphs of up to 1500 clients, ``client_graph.png``."""
    train, val = zip(*module.curve, strict=True)
    rounds = range(1, len(module.curve) + 1)
    figures = {"loss_curves": loss_curves(rounds, {"train": train, "validation": val}, module.best.round or None)}
    if graph.num_clients <= CLIENTS:
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
    prediction, finished = module.prediction(), summary["status"] == "finished"
    unfinished = Rivals(missing="As the fit did not finish, no other model was trained beside it.")
    content = FitPage(
        title=f"{summary['model']} on {_called(data)}",
        summary=summary,
        graph=module.told(data.graph),
        names=data.names,
        prediction=prediction,
        rivals=rivals_of(module, data, int(summary["rounds"])) if finished else unfinished,
        curve=module.curve,
        features=data.feature_columns if summary["privacy"] is None else {},  # each would be a release
        missing=data.missing_cells,
        predict=_predicting(module),
        edges=edges,
        command=f"python -m gfl_lightning {shlex.join(arguments)}",
    )
    write_page(folder / "report.html", content.page())


def _called(data: DataSet) -> str:
    """The name of the data: of their first file, if they are files."""
    file = getattr(data, data.files[0], None) if data.files else None
    return type(data).__name__ if file is None else Path(str(file)).name


def _predicting(module: RoundModule) -> Callable[[ClientGraph], Tensor]:
    """What the parameters predict on graphs of the same clients."""
    like, weights = next(module.parameters()), module.current_weights()

    def predict(graph: ClientGraph) -> Tensor:
        moved = graph.to(like.device).to(like.dtype)
        logits = module.predictor_on(moved).logits_of(weights, module.round_of_the_parameters())
        return graph.loss.link(logits[: graph.num_samples]).cpu()

    return predict
