"""The personal terms of all clients at some W̄: a function of it and of each client's own training samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.personal.fitting import Fitting
from gfl_lightning.federated.personal.offsets import NoOffset, Offset
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.personal.personal import Personal


@dataclass(frozen=True, eq=False)
class Terms:
    """g_k and B_k of every client; 1 and 0 for one without training samples.

    Args:
        gate: g ``[N]``.
        B: over the features φ ``[N, c, q]``.
    """

    gate: Tensor
    B: Tensor

    def of_samples(self, client: Tensor, phi: Tensor) -> Tensor:
        """B_k φ(x_s) of samples, ``[…], […, q] → […, c]``."""
        return (self.B[client] @ phi[..., None])[..., 0]

    def placed(self, known: Tensor, none: Terms) -> Terms:
        """Those of other clients: of number ``known [n]`` among these, or ``none`` where it is −1."""
        old = (known >= 0).to(none.gate.device)
        gate, B = self.gate.to(none.gate)[known], self.B.to(none.B)[known]
        return Terms(torch.where(old, gate, none.gate), torch.where(old[:, None, None], B, none.B))


@dataclass(frozen=True, eq=False)
class PersonalFit:
    """How the clients of a graph find their terms.

    Args:
        personal: which terms there are.
        graph: the clients and their samples.
    """

    personal: Personal
    graph: ClientGraph

    @cached_property
    def phi(self) -> Tensor:
        """φ of every sample ``[S, q]``."""
        return self.personal.features(self.graph.x)

    @cached_property
    def _training(self) -> TrainingSet | None:
        """The training samples; none where nobody has any."""
        return TrainingSet.of(self.graph) if bool(self.graph.mask(Split.TRAIN).any()) else None

    @cached_property
    def _strength(self) -> Tensor:
        """λ of g and of B, class by class ``[1 + c q]``; one that is not there has any."""
        x, gate = self.graph.x, self.personal.gate_strength
        each = torch.tensor(self.personal.strengths(x.shape[1]), dtype=torch.float64, device=x.device)
        first = each.new_tensor([gate if self.gated else 1.0])
        return torch.cat([first, each.repeat(self.graph.num_classes)])

    @property
    def gated(self) -> bool:
        """Whether clients have gates."""
        return self.personal.gate_strength < torch.inf

    @property
    def is_inert(self) -> bool:
        """Whether there are no terms."""
        return self.personal.is_inert

    def applied(self, terms: Terms, z: Tensor, h: Tensor) -> Tensor:
        """What the clients predict where the graph says ``z [S, c]`` and their own representations are ``h``."""
        client = self.graph.client
        if self.gated:
            gate = terms.gate[client, None]
            z = gate * z + (1 - gate) * h
        return z + terms.of_samples(client, self.phi)

    def offset(self, terms: Terms, training: TrainingSet) -> NoOffset:
        """What the terms add to the outputs of training samples."""
        if not self.phi.shape[1]:
            return NoOffset()
        return Offset(terms.of_samples(training.clients[:, None], self.phi[training.sample]))

    @cached_property
    def none(self) -> Terms:
        """No term for anybody."""
        graph = self.graph
        gate = graph.x.new_ones(graph.num_clients)
        return Terms(gate, graph.x.new_zeros(graph.num_clients, graph.num_classes, self.phi.shape[1]))

    def __call__(self, z: Tensor, h: Tensor) -> Terms:
        """The terms where the graph says ``z [S, c]`` of the samples and their own representations are ``h [S, c]``.

        f is convex, so that the best gate in [0, 1] is the best one of all, cut off there: it is found first, and the
        rest once more where the gate was cut.
        """
        training = self._training
        if training is None:
            return self.none
        terms = Terms(self.none.gate.clone(), self.none.B.clone())
        z, h = z.detach().double(), h.detach().double()
        fitting = self._fitting(training, z, z - h)
        theta = z.new_zeros(len(training), len(self._strength))
        free = torch.ones_like(theta, dtype=torch.bool)
        free[:, 0] = self.gated
        theta = fitting.minimiser(theta, free)
        outside = (theta[:, 0] > 0) | (theta[:, 0] < -1)
        if bool(outside.any()):
            theta = torch.cat([theta[:, :1].clamp(-1, 0), theta[:, 1:]], 1)
            theta = fitting.minimiser(theta, free & ~outside[:, None] | _all_but_first(free))
        theta = theta.to(terms.B.dtype)
        terms.gate[training.clients] = 1 + theta[:, 0]
        terms.B[training.clients] = theta[:, 1:].view(len(training), *terms.B.shape[1:])
        return terms

    def _fitting(self, training: TrainingSet, z: Tensor, by_gate: Tensor) -> Fitting:
        """The clients' problems; θ is g − 1 and the entries of B, so that 0 is the shared model."""
        graph, rows = self.graph, training.sample
        phi, c = self.phi[rows].double(), graph.num_classes
        eye = torch.eye(c, dtype=z.dtype, device=z.device)
        by_B = torch.einsum("knq,oc->knoqc", phi, eye).flatten(2, 3)
        return Fitting(
            loss=graph.loss,
            offset=z[rows],
            design=torch.cat([by_gate[rows][:, :, None, :], by_B], 2),
            y=graph.y[rows],
            target=training.target.double(),
            weight=(training.weight * training.present).double(),
            strength=self._strength,
        )


def _all_but_first(free: Tensor) -> Tensor:
    others = torch.ones_like(free)
    others[:, 0] = False
    return others
