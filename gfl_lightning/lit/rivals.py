"""Models that are trained beside a fit on tables, so that its report can say whether the graph helps."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from gfl_lightning.baselines.local_mlps import LocalModels
from gfl_lightning.baselines.pooled import POOLED, Pooled
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import DivergedError, Engine
from gfl_lightning.engine.newcomers import Newcomers
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.tables.client_tables import ClientTables
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.options import rebuilt
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.models.personal.shared import Shared
from gfl_lightning.parts import describe
from gfl_lightning.reports.rivals import FEDAVG, NO_FEATURE, Joining, Rival, Rivals
from gfl_lightning.reports.scores import baseline

WORK = 2**35  # updates × training rows × weights of a fit, beyond which nothing is trained beside it
ENTRIES = 2**24  # of the table that a pooled model reads
PATIENCE = 40
THIS = "this model"


def rivals_of(module: RoundModule, data: DataSet, rounds: int) -> Rivals:
    """Train FedAvg, isolated and pooled models on the split of a fit of so many rounds, and without a fifth of clients.

    Under protection nothing is trained that the account does not know of.
    """
    graph = data.graph
    if not isinstance(module, GFL) or not isinstance(data, ClientTables) or not bool(graph.mask(Split.TEST).any()):
        return Rivals()
    if module.account.protects:
        return Rivals(missing="Where uploads are protected nothing else is trained, as that would be released too.")
    if not module.records.is_inert:
        return Rivals(missing="As clients take part with records other than their rows, nothing else saw the rows.")
    weights = sum(weight.numel() for weight in module.current_weights().values())
    if rounds * module.local.steps * int(graph.mask(Split.TRAIN).sum()) * weights > WORK:
        return Rivals(missing="As this fit is a long one, no other model was trained beside it.")
    width = {one: graph.num_features + one.dummies * graph.num_clients for one in POOLED}
    fits = [one for one in POOLED if graph.num_samples * width[one] < ENTRIES]
    found = []
    if not module.model.aggregator.isolates:
        found.append(Rival(FEDAVG, _trained(_like(module, alone=True), graph, rounds)))
    if bool((graph.counts(graph.mask(Split.TRAIN)) > 0).all()):
        found.append(Rival("isolated: a model for each client", _isolated(module, graph, rounds)))
    found += [Rival(one.title, one.prediction(graph), in_one_place=True) for one in fits]
    left = [one.title for one in POOLED if one not in fits]
    missing = f"Left out, as the table would be too large: {', '.join(left)}." if left else ""
    return Rivals(found, _joining(module, graph, rounds, fits), missing)


def _joining(module: GFL, graph: ClientGraph, rounds: int, pooled: list[Pooled]) -> Joining | None:
    """The same for clients that join after training; nobody where there are too few clients to leave some out."""
    found = Newcomers.of(graph, module.seed)
    if found is None:
        return None
    titles = {THIS: False} | ({} if module.model.aggregator.isolates else {FEDAVG: True})
    predictions = {}
    for title, alone in titles.items():
        model = _like(module, alone)
        best = _best(model.engine_on(found.without, rounds), rounds)
        outputs = model.predictor_on(found.whole).logits_of(best.weights)
        predictions[title] = found.whole.loss.link(outputs).cpu()
    predictions |= {f"{one.title} *": one.of_newcomers(found) for one in pooled if not one.dummies}
    predictions[NO_FEATURE] = baseline(found.without)[:1].expand(graph.num_samples, -1)
    return Joining(found.whole, found.rows, predictions)


def _like(module: GFL, alone: bool) -> GFL:
    """A fresh model with the options of another, ``alone`` without neighbours."""
    options: dict[str, Any] = dict(module.hparams)
    if alone:
        options["aggregator"] = describe(Identity())
    if alone and math.isfinite(module.personal.gate_strength):
        level = getattr(module.personal, "level", math.inf)
        options["personal"] = describe(OwnLevel(level) if math.isfinite(level) else Shared())
    return GFL(**rebuilt(GFL, options))


def _trained(model: GFL, graph: ClientGraph, rounds: int) -> Tensor:
    engine = model.engine_on(graph, rounds)
    return _predicted(engine, _best(engine, rounds))


def _isolated(module: GFL, graph: ClientGraph, rounds: int) -> Tensor:
    encoder = module.model.encoder.encoder
    hidden = encoder.hidden[0] if isinstance(encoder, MLP) and encoder.hidden else 16
    engine = LocalModels(graph, hidden, module.local.lr, module.local.batch_size, module.seed)
    return _predicted(engine, _best(engine, rounds * module.local.steps))


def _predicted(engine: Engine[Any], best: Best) -> Tensor:
    return engine.graph.loss.link(engine.logits_of(best.weights, best.round)).cpu()


def _best(engine: Engine[Any], rounds: int) -> Best:
    """The best weights of so many rounds, or of those until the validation loss has not fallen for a while."""
    state, best = engine.start(), Best()
    while state.round < rounds and state.round - best.round < PATIENCE:
        try:
            state, report = engine.round(state)
        except DivergedError:
            break
        best = engine.choose(best, state, report)
    return best if best.weights else Best(0, math.inf, state.weights)
