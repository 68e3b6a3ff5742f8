"""What a site has at the end: the model, and C_k of its own clients. It predicts for its rows where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.state_file import read_state, write_state
from gfl_lightning.federated.protocol.messages import RepresentationAggregate
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.names import Names
from gfl_lightning.graphs.tables.encoding import Encoding
from gfl_lightning.graphs.tables.features import check_features
from gfl_lightning.graphs.tables.problems import Problems
from gfl_lightning.graphs.tables.samples import check_samples, read_samples
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.reports.predictions import prediction_table

FILE = "model.gfl"


@dataclass(frozen=True, eq=False)
class SiteModel:
    """The model as one site holds it.

    Args:
        plan: of the federation.
        encoding: how rows become features.
        clients: names of the site's clients.
        own: Ã_kk, or (P^l)_kk, of each ``[n, L]``.
        C: C_k of each, or of each hop ``[n, L, c]``.
        weights: W̄ of the best round.
    """

    plan: Plan
    encoding: Encoding
    clients: tuple[str, ...]
    own: Tensor
    C: Tensor
    weights: Weights

    @classmethod
    def of(
        cls,
        plan: Plan,
        encoding: Encoding,
        clients: Any,
        own: Tensor,
        weights: Weights,
        received: Sequence[RepresentationAggregate],
    ) -> SiteModel:
        """From what the site received; C_k = 0 where no client sees another."""
        by_client = {message.client: message.C for message in received}
        none = own.new_zeros(own.shape[1], len(encoding.classes))
        C = torch.stack([by_client.get(k, none).view_as(none) for k in clients.in_order])
        return cls(plan, encoding, clients.names, own, C, weights)

    def predict(self, samples: str) -> pd.DataFrame:
        """Predicted label and class probabilities of every row of a table of the site's clients."""
        settings, problems = self.encoding.settings, Problems()
        table = read_samples(samples, settings, ())
        rows = check_samples(table, settings, self.encoding.classes, problems)
        for name in sorted(set(rows.clients) - set(self.clients)):
            problems.add(table.name, f"client {name!r} is none of this site's")
        features = check_features(table, list(self.encoding.trained), settings, self.encoding.trained, problems)
        problems.refuse()
        client, c = torch.from_numpy(rows.client), len(self.encoding.classes)
        rows_alone = _unlabelled(torch.from_numpy(self.encoding.encode(features, rows.client)), client, c)
        graph = self.plan.records.at_home(rows_alone)
        place = torch.tensor([self.clients.index(name) for name in rows.clients])[client]
        model = self.plan.model(self.encoding.num_features, c)
        gamma = model.gamma(self.weights).to(graph.x) if model.aggregator.learnable else graph.x.new_ones(1)
        h = model.encoder(model.encoder.own(self.weights), graph.x)
        logits = (self.own @ gamma)[place, None] * h + torch.tensordot(self.C, gamma, ([1], [0]))[place]
        names = Names(rows.clients, rows.sample.tolist(), self.encoding.classes)
        return prediction_table(graph, names, torch.softmax(logits, -1))

    def state(self) -> dict[str, Any]:
        """Plain containers of tensors."""
        return {
            "plan": self.plan.state(),
            "encoding": self.encoding.state(),
            "clients": list(self.clients),
            "own": self.own,
            "C": self.C,
            "weights": self.weights,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SiteModel:
        """From what :meth:`state` returned."""
        encoding = Encoding.from_state(state["encoding"], FILE)
        tensors = (state["own"], state["C"], dict(state["weights"]))
        return cls(Plan.from_state(state["plan"]), encoding, tuple(state["clients"]), *tensors)


def _unlabelled(x: Tensor, client: Tensor, classes: int) -> ClientGraph:
    """Rows without labels of clients without edges."""
    every = torch.ones(len(x), dtype=torch.bool)
    unknown = torch.full((len(x),), -1)
    split = torch.full((len(x),), int(Split.NONE), dtype=torch.int8)
    return ClientGraph(x, unknown, client, split, every, torch.zeros(2, 0, dtype=torch.int64), classes)


def write_site_model(folder: Path, model: SiteModel) -> Path:
    """Write the model into a site's folder, whole or not at all."""
    write_state(folder / FILE, model.state())
    return folder / FILE


def read_site_model(folder: Path) -> SiteModel:
    """The model that a site received."""
    file = folder / FILE
    require(file.is_file(), "DIR", "be the folder of a site whose training is over", str(folder))
    return SiteModel.from_state(read_state(file))
