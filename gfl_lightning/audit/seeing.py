"""Views of a recorded federation: the messages that pass between the server and a client, made when they are looked at.

Noise on a client's own uploads is a fresh draw of the law in force, since the engine draws only sums of it; what a
client was sent and the model it returned belong together, noise included.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.func import jacrev

from gfl_lightning.attacks.views import Kinds, Making, Round, View
from gfl_lightning.audit.client_uploads import ClientProgram, quick_noise
from gfl_lightning.audit.recording import Recording, shared_records
from gfl_lightning.federated.exchange.neighbourhood import rows_of_others
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.problem import LocalProblem
from gfl_lightning.federated.protection.protected_messages import protected
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.federated.protocol.traffic import one_direction
from gfl_lightning.federated.state import FederationState
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.noise_source import NoiseSource

UPDATES = 3


@dataclass(eq=False)
class Seeing:
    """Who sees what of a recorded federation.

    Args:
        recording: the federation and its states.
        seed: of the noise on uploads.
        updates: in how many of the first kept rounds the clients' models are shown; each costs a round of training.
    """

    recording: Recording
    seed: int = 0
    updates: int = UPDATES
    _trained: dict[int, tuple[LocalProblem, Weights]] = field(default_factory=dict, init=False)

    @property
    def federation(self) -> Federation:
        """What was trained."""
        return self.recording.federation

    @cached_property
    def program(self) -> ClientProgram:
        """What a client computes."""
        federation = self.federation
        compensated = federation.estimator == "compensated"
        return ClientProgram(federation.encoder, federation.protocol, compensated, federation.protection)

    @cached_property
    def own(self) -> Tensor:
        """Ã_kk of all clients."""
        return self.federation.propagation.diagonal()

    def row(self, client: int) -> Tensor:
        """Ã_kj of all others ``[N]``."""
        return rows_of_others(self.federation.propagation, torch.tensor([client]))[0]

    def records(self, client: int) -> Tensor:
        """The records that a client shares the mean of, as the federation has them ``[n, d]``."""
        return shared_records(self.federation, client)

    def server(self, client: int, x: Tensor | None = None) -> View:
        """All that passes between the server and a client; of one that holds other records ``x``, its uploads alone."""
        places = range(len(self.recording.states))
        rounds = tuple((lambda kinds, t=t: self._server_round(kinds, t, client, x)) for t in places)
        return self._view(rounds, client)

    def fellow(self, client: int) -> View:
        """All that the server sends to a training client."""
        places = range(len(self.recording.states))
        rounds = tuple((lambda kinds, t=t: self._fellow_round(kinds, t, client)) for t in places)
        return self._view(rounds, client)

    def outsider(self) -> View:
        """The final model."""
        return View.of(self.federation.encoder, [Round(self.recording.final)])

    def _view(self, rounds: tuple[Making, ...], client: int) -> View:
        federation = self.federation
        return View(federation.encoder, rounds, float(self.own[client]), federation.lr, federation.local.steps)

    def _noise(self, *index: int) -> NoiseSource:
        return NoiseKey.of_seed(self.seed).source("audit", *index)

    def _server_round(self, kinds: Kinds, t: int, client: int, x: Tensor | None) -> Round:
        state = self.recording.states[t]
        messages: tuple[Message, ...] = ()
        if _wanted(kinds, RepresentationUpload, JacobianUpload, FactorUpload):
            messages = self._uploads(state, t, client, x, _wanted(kinds, JacobianUpload, FactorUpload))
        if x is None and t < self.updates and _wanted(kinds, ModelUpload):
            messages += self._update(state, t, client)
        return Round(state.weights, messages).only(kinds)

    def _uploads(
        self, state: FederationState, t: int, client: int, x: Tensor | None, jacobian: bool
    ) -> tuple[Message, ...]:
        federation = self.federation
        schedule = federation.schedule
        shares = schedule.everyone_shares or client in schedule.who_shares(state.round)
        if not shares or federation.aggregator.isolates:
            return ()
        records = shared_records(federation, client) if x is None else x
        earlier = int(state.enrolled_in[client])
        first = earlier < 0 or earlier == state.round
        program = self.program if jacobian else replace(self.program, compensated=False)
        return program.drawn(state.weights, records, client, self._noise(t, client, int(x is None)), first)

    def _update(self, state: FederationState, t: int, client: int) -> tuple[Message, ...]:
        """What a training client was sent and the model it returned; nothing if it did not train."""
        problem, models = self._training(state, t)
        place = (problem.training.clients == client).nonzero().flatten()
        if not len(place):
            return ()
        k = int(place[0])
        W = {name: stacked[k] for name, stacked in models.items()}
        if not all(bool(w.isfinite().all()) for w in W.values()):
            return ()
        sent = () if self.federation.aggregator.isolates else self._aggregates(problem, client, k, t)
        upload = ModelUpload(client, W)
        return (*sent, protected(upload, self.federation.protection, state.weights, self._noise(t, client, 2)))

    def _training(self, state: FederationState, t: int) -> tuple[LocalProblem, Weights]:
        """The local problem of a kept round and the models it ends in, before bounds, remembered."""
        if t not in self._trained:
            problem = self.federation.single_models_problem(state)
            self._trained[t] = (problem, self.federation.local_path.models(problem))
        return self._trained[t]

    def _fellow_round(self, kinds: Kinds, t: int, client: int) -> Round:
        state = self.recording.states[t]
        federation = self.federation
        places = federation.schedule.training_places(state.round)
        if federation.aggregator.isolates or (
            places is not None and client not in federation.schedule.who_trains(state.round)
        ):
            return Round(state.weights)
        problem = federation.local_problem(state) if t not in self._trained else self._trained[t][0]
        jacobian = _wanted(kinds, JacobianAggregate, FactorAggregate)
        return Round(state.weights, self._aggregates(problem, client, None, t, jacobian)).only(kinds)

    def _aggregates(
        self, problem: LocalProblem, client: int, place: int | None, t: int, jacobian: bool = True
    ) -> tuple[Message, ...]:
        """C_k and ∇C_k; the noise in ∇C_k is that of the problem's client at ``place``, or a draw of its law.

        What a linear encoder's ∇C_k is under the Gram protocol, its factor, says the same.
        """
        federation, exchange = self.federation, problem.exchange
        row = self.row(client)
        sent: tuple[Message, ...] = (RepresentationAggregate(client, row @ exchange.uploaded_h),)
        if federation.estimator != "compensated" or not jacobian:
            return sent
        if federation.protocol == "gram" and place is None and federation.encoder.structure is not None:
            return (*sent, self._factors(problem, row, client))
        grad_C = self._grad_C(problem, row)
        mechanism = federation.protection.jacobian
        if place is not None:
            for name, noise in problem.noise.parts(list(grad_C)).items():
                grad_C[name] = grad_C[name] + noise[place, 0]
        elif mechanism.is_noisy:
            source = self._noise(t, client, 3)
            for name, part in grad_C.items():
                quick = quick_noise(mechanism, part, source) * row.norm()
                grad_C[name] = part + (quick if isinstance(mechanism, Gaussian) else self._drawn(row, part, source))
        return (*sent, JacobianAggregate(client, grad_C))

    def _drawn(self, row: Tensor, part: Tensor, source: NoiseSource) -> Tensor:
        return self.federation.protection.jacobian.draw_sum(row, tuple(part.shape), source).to(part)

    def _grad_C(self, problem: LocalProblem, row: Tensor) -> Weights:
        """Σ_{j≠k} Ã_kj ∇ĥ_j by weight ``[c, …]``, by factors or by differentiating the weighted sum of h."""
        encoder, table = self.federation.encoder, self.federation.prediction.table
        structure = encoder.structure
        total: Weights = {}
        for group in problem.exchange.groups:
            owner, share, rows = table.shared_columns(group.positions)
            coefficient = row[owner] * share
            if structure is not None and group.pattern is not None:
                W1, W2 = structure.split(group.weights)
                T = table.features.x[rows].T @ (group.pattern * coefficient[:, None])
                a = coefficient @ torch.relu(table.features.x[rows] @ W1.T * group.pattern)
                eye = torch.eye(len(W2), dtype=W2.dtype)
                part = structure.join(W2[:, :, None] * T.T, eye[:, :, None] * a)
            else:
                scaled = group.scale.rows(coefficient[:, None])[:, 0]
                x = table.graph.x[rows]
                part = jacrev(lambda w, c=scaled, x=x: c @ encoder(w, x))(encoder.own(group.weights))
            total = {name: J + total[name] if total else J for name, J in part.items()}
        return total

    def _factors(self, problem: LocalProblem, row: Tensor, client: int) -> FactorAggregate:
        """What the Gram protocol sends instead of ∇C_k, where everyone's upload is of this round."""
        structure, graph = self.federation.encoder.structure, self.federation.graph
        assert structure is not None
        grad = self._grad_C(problem, row)
        first, second = structure.split(grad)
        W2 = structure.split(problem.weights)[1]
        strength = W2.square().sum(0).clamp_min(torch.finfo(W2.dtype).tiny)
        T = torch.einsum("om,omd->md", W2, first) / strength[:, None]
        A = second.diagonal(dim1=0, dim2=1).mean(1)
        if bool(one_direction(graph)[client]):
            return FactorAggregate(client, A, cross=T @ shared_records(self.federation, client)[0])
        return FactorAggregate(client, A, T=T)


def _wanted(kinds: Kinds, *made: type[Message]) -> bool:
    """Whether messages of one of these kinds would be looked at."""
    return any(issubclass(one, kinds) for one in made)
