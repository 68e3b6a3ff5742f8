"""The personal terms of all clients at some W̄: a function of it and of each client's own training samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.personal.fitting import Fitting, Logistic
from gfl_lightning.federated.personal.level_strength import NUMBERS_SENT, common_level, level_strength, sums
from gfl_lightning.federated.personal.offsets import NoOffset, Offset
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.cross_entropy import CrossEntropy
from gfl_lightning.models.personal.personal import Personal


@dataclass(frozen=True, eq=False)
class Terms:
    """g_k and B_k of every client; 1 and 0 for one without training samples.

    Args:
        gate: g ``[N]``.
        B: over the features φ ``[N, c, q]``.
        common: m, a level that local steps leave to the encoder's bias.
    """

    gate: Tensor
    B: Tensor
    common: float = 0.0

    @property
    def of_clients(self) -> dict[str, Tensor]:
        """What each client keeps for itself, by name."""
        return {"gate": self.gate, "B": self.B}

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
        has_bias: whether the encoder can learn a level of all.
    """

    personal: Personal
    graph: ClientGraph
    has_bias: bool = False

    @cached_property
    def phi(self) -> Tensor:
        """φ of every sample ``[S, q]``."""
        return self.personal.features(self.graph.x)

    @cached_property
    def _parts(self) -> list[TrainingSet]:
        """The training samples, clients with about as many together; none where nobody has any."""
        if not bool(self.graph.mask(Split.TRAIN).any()):
            return []
        return TrainingSet.of(self.graph).by_size()

    @property
    def anchors(self) -> bool:
        """Whether a common level of the clients is told, which local steps leave to the bias."""
        return self.personal.estimates and self.has_bias and self.graph.loss.of_numbers

    def _sent(self, z: Tensor) -> Tensor:
        """What all clients send, if they estimate λ together ``[K, 5]``."""
        if not self.personal.estimates:
            return z.new_zeros(0, NUMBERS_SENT)
        loss = self.graph.loss
        return torch.cat([sums(loss, z[part.sample], part.target.double(), _weight(part)) for part in self._parts])

    def _strength(self, sent: Tensor) -> Tensor:
        """λ of g and of B, output by output ``[1 + c q]``; one that is not there has any.

        Two classes have one output, their margin m = z_1 − z_0: it moves by d where B = (−d/2, d/2), and then
        ½ λ ‖B‖² = ½ (λ/2) d².
        """
        x, gate = self.graph.x, self.personal.gate_strength
        each = torch.tensor(self.personal.strengths(x.shape[1]), dtype=torch.float64, device=x.device)
        if self.personal.estimates:
            each = each * level_strength(self.graph.loss, sent)
        first = each.new_tensor([gate if self.gated else 1.0])
        return torch.cat([first, each / 2 if self._by_margin else each.repeat(self.graph.num_classes)])

    @property
    def _by_margin(self) -> bool:
        """Whether there are two classes: what B adds to both leaves the loss alone, so that at best their sum is 0."""
        return type(self.graph.loss) is CrossEntropy and self.graph.num_classes == 2

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
        """What the terms add to the outputs of training samples, less the level that is common to them."""
        if not self.phi.shape[1]:
            return NoOffset()
        own = terms.of_samples(training.clients[:, None], self.phi[training.sample])
        return Offset(own - terms.common if self.anchors else own)

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
        if not self._parts:
            return self.none
        z, h = z.detach().double(), h.detach().double()
        sent = self._sent(z)
        common = common_level(sent) if self.anchors else 0.0
        terms = Terms(self.none.gate.clone(), self.none.B.clone(), common)
        strength = self._strength(sent)
        for training in self._parts:
            theta = self._best(self._fitting(training, z, z - h, strength)).to(terms.B.dtype)
            terms.gate[training.clients] = 1 + theta[:, 0]
            B = theta[:, 1:].view(len(training), 1 if self._by_margin else z.shape[1], terms.B.shape[2])
            terms.B[training.clients] = torch.cat([-B / 2, B / 2], 1) if self._by_margin else B
        return terms

    def _best(self, fitting: Fitting) -> Tensor:
        """θ of some of the clients."""
        theta = fitting.offset.new_zeros(len(fitting.offset), len(fitting.strength))
        free = torch.ones_like(theta, dtype=torch.bool)
        free[:, 0] = self.gated
        theta = fitting.minimiser(theta, free)
        outside = (theta[:, 0] > 0) | (theta[:, 0] < -1)
        if bool(outside.any()):
            theta = torch.cat([theta[:, :1].clamp(-1, 0), theta[:, 1:]], 1)
            theta = fitting.minimiser(theta, free & ~outside[:, None] | _all_but_first(free))
        return theta

    def _fitting(self, training: TrainingSet, z: Tensor, by_gate: Tensor, strength: Tensor) -> Fitting:
        """The problems of some of the clients; θ is g − 1 and the entries of B, so that 0 is the shared model."""
        graph, rows, target = self.graph, training.sample, training.target.double()
        if self._by_margin:
            z, by_gate, target = (both[..., 1:] - both[..., :1] for both in (z, by_gate, target))
            target = (target + 1) / 2
        return Fitting(
            loss=Logistic() if self._by_margin else graph.loss,
            offset=z[rows],
            by_gate=by_gate[rows],
            phi=self.phi[rows].double(),
            y=graph.y[rows],
            target=target,
            weight=_weight(training),
            strength=strength,
        )


def _weight(training: TrainingSet) -> Tensor:
    """w, 0 where there is no sample."""
    return (training.weight * training.present).double()


def _all_but_first(free: Tensor) -> Tensor:
    others = torch.ones_like(free)
    others[:, 0] = False
    return others
