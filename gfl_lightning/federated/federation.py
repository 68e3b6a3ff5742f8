"""GFL-APPNP: the federation and its communication round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_choice, require_count, require_rate
from gfl_lightning.engine.engine import DivergedError, Engine, require_weights
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood, rows_by_hop
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.local.options import ESTIMATORS, Estimator, LocalTraining, Path
from gfl_lightning.federated.local.paths import Sizes, choose_path, local_path
from gfl_lightning.federated.local.problem import LocalProblem
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protection.jacobian_noise import NoJacobianNoise
from gfl_lightning.federated.protection.jacobian_noise_sources import Silent, noise_source
from gfl_lightning.federated.protection.shield import Shield, require_protection
from gfl_lightning.federated.protocol.choice import ProtocolName, require_protocol
from gfl_lightning.federated.protocol.traffic import TrafficMeter
from gfl_lightning.federated.report import Reporter, RoundReport
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.federated.server.weighting import WEIGHTINGS, Weighting, votes
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import Encoder, Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.protection import Protection


class Federation(Engine[FederationState]):
    """Clients on a graph, a server, and the rounds between them.

    A round is a function of the state, the data and (seed, round): I local steps of the clients that train, from W̄
    and the representations that stand; the server's average; then the exchange of representations at the new W̄,
    whose metrics it reports.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> federation = Federation(DNC(num_clients=50).graph, local=LocalTraining(lr=0.1, steps=5))
    >>> state, report = federation.round(federation.start())
    >>> report.trained, federation.path
    (5, 'dual')

    Args:
        graph: the clients and their samples.
        encoder: Ψ_h.
        aggregator: Ψ_G.
        estimator: ``compensated`` (∇C_k is shared), ``v1`` (only ĥ is) or ``exact``: others' representations
            recomputed at the client's own W_k, which no federation could do, to measure what staleness costs.
        local: the clients' optimizer.
        server: the server's.
        participation: who takes part.
        weighting: of the clients in the average: ``uniform``, or by ``samples``.
        protocol: which messages carry ∇ĥ and the update; the trajectory of W̄ does not depend on it.
        path: how the local steps are computed; the result does not depend on it.
        seed: determines the initial weights, batches, participation and noise.
        protection: bounds and noise on what clients upload.
    """

    def __init__(
        self,
        graph: ClientGraph,
        encoder: Encoder = MLP(),  # noqa: B008  # parts are frozen
        aggregator: Aggregator = APPNP(),  # noqa: B008
        estimator: Estimator = "compensated",
        local: LocalTraining = LocalTraining(),  # noqa: B008
        server: ServerOptimizer = Average(),  # noqa: B008
        participation: Participation = Participation(),  # noqa: B008
        weighting: Weighting = "uniform",
        protocol: ProtocolName = "jacobian",
        path: Path = "auto",
        seed: int = 0,
        protection: Protection = Protection(),  # noqa: B008
    ) -> None:
        require_choice("estimator", estimator, ESTIMATORS)
        require_choice("weighting", weighting, WEIGHTINGS)
        require_count("seed", seed, least=0)
        self.graph, self.aggregator, self.estimator, self.local = graph, aggregator, estimator, local
        self.server, self.participation, self.protocol, self.seed = server, participation, protocol, seed
        self.lr, self.updates_per_round = local.lr, local.steps
        self.schedule = Schedule.of(graph, participation, local, seed, poisson=not protection.steps.is_inert)
        require(
            self.schedule.everyone_shares or estimator != "exact",
            "share",
            "be 1.0 for the exact estimator, which recomputes every representation",
            participation.share,
        )
        self.prediction = Prediction(graph, encoder, aggregator, protection, seed)
        self.model, self.encoder = self.prediction.model, self.prediction.model.encoder
        require_protocol(protocol, self.encoder, aggregator, estimator, local)
        require_protection(protection, protocol, estimator, aggregator.isolates, graph.x)
        self.propagation = self.prediction.propagation
        self.votes = votes(self.schedule.training, weighting)
        self._near = Neighbourhood.of(self.propagation, self.schedule.training.clients)
        sizes = Sizes.of(self.schedule.training, self.prediction.table)
        self.path = choose_path(path, sizes, self.encoder, aggregator, estimator, local, not protection.steps.is_inert)
        self.local_path = local_path(
            self.path, self.prediction.table, self.model, estimator, local, self.schedule.training, self._near
        )
        self.shield = Shield(self.prediction.guard, self._jacobian_noise(), self._expected_batch())
        meter = TrafficMeter(self.model, estimator != "v1" and not aggregator.isolates, graph.x.element_size())
        self._reporter = Reporter(graph, self.schedule, meter, protocol)

    @property
    def protection(self) -> Protection:
        """Bounds and noise on what clients upload."""
        return self.shield.protection

    def start(self, weights: Weights | None = None) -> FederationState:
        """The state before the first round, after the exchange at W̄; the seed's weights unless some are given."""
        if weights is None:
            weights = self.model.initial_weights(generator(self.seed, Stream.WEIGHTS), self.graph.x.dtype)
        never = torch.full((self.graph.num_clients,), -1, device=self.graph.x.device)
        return self._resumed(FederationState(0, weights, never, never))

    def round(self, state: FederationState, lr: float | None = None) -> tuple[FederationState, RoundReport]:
        """One communication round; ``lr`` replaces the clients' rate for this round."""
        if lr is not None:
            require_rate("lr", lr)
        state = self._exchanged(state)
        problem = self.local_problem(state, lr)
        result = self.local_path(problem)
        if result.skipped == len(problem.training):
            raise DivergedError(
                f"lr must be small enough for finite updates, got {problem.lr}: in round {state.round + 1} the update "
                "of every training client became non-finite.",
                state,
            )
        average = self.shield.uploaded(problem, result, state.round)
        weights, memory = self.server.step(state.weights, average, state.server)
        if weights is not average and not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise DivergedError(
                f"server must leave finite weights, got {self.server}: in round {state.round + 1} its step made them "
                "non-finite.",
                state,
            )
        history = state.history if self.schedule.everyone_shares else {**state.history, state.round: state.weights}
        uploads = (state.uploaded_in, state.enrolled_in, history)
        after = self._exchanged(FederationState(state.round + 1, weights, *uploads, memory))
        trained = problem.training.clients
        return after, self._reporter.report(state, after, trained, result.skipped, self.evaluator(self.logits(after)))

    def progress(self, state: FederationState) -> dict[str, Any]:
        """Ages of the uploads, the W̄ they come from, and the server's memory."""
        return {
            "uploaded_in": state.uploaded_in,
            "enrolled_in": state.enrolled_in,
            "history": state.history,
            "server": state.server,
        }

    def resume(self, round_number: int, weights: Weights, progress: dict[str, Any]) -> FederationState:
        """The state that these were taken from."""
        return self._resumed(FederationState(round_number, weights, **progress))

    def logits(self, state: FederationState) -> Tensor:
        """Ã_kk h_{k,s}(W̄) + C_k of every sample ``[S, c]``; no pass over the encoder if the exchange just made one."""
        now = self._exchanged(state).exchange
        assert now is not None
        return self.prediction.after(now, state.weights)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """The same for any weights, every client sharing its representation at them; differentiable in the weights."""
        return self.prediction.logits_of(weights, round_number)

    def local_problem(self, state: FederationState, lr: float | None = None) -> LocalProblem:
        """What the clients that train in the round from a state start from."""
        return self._problem(state, lr, self.protection, self.shield.jacobians.draw)

    def single_models_problem(self, state: FederationState, lr: float | None = None) -> LocalProblem:
        """The same for what asks after single clients' models, before any bound on their updates."""
        return self._problem(state, lr, Protection(), self.shield.jacobians.draw_all)

    def _problem(
        self,
        state: FederationState,
        lr: float | None,
        protection: Protection,
        noise: Callable[[int, Tensor], NoJacobianNoise],
    ) -> LocalProblem:
        """The local problem of the clients that train."""
        state = self._exchanged(state)
        assert state.exchange is not None
        everyone = LocalProblem(
            weights=state.weights,
            exchange=state.exchange,
            neighbourhood=self._near,
            training=self.schedule.training,
            batches=self.schedule.batches(state.round),
            chosen=None,
            vote=self.votes,
            lr=self.local.lr if lr is None else lr,
            steps=self.local.steps,
            protection=protection,
            noise=noise(state.round, state.uploaded_in),
            step_guard=self.shield.steps(state.round),
        )
        places = self.schedule.training_places(state.round)
        return everyone if places is None else everyone.take(places)

    def _jacobian_noise(self) -> Silent:
        """Where noise on ∇ĥ_j comes from; what no client reads is drawn after the steps, if no norm asks for it."""
        mechanism, training = self.prediction.guard.protection.jacobian, self.schedule.training
        if not mechanism.is_noisy:
            return Silent()
        rows, _ = rows_by_hop(self.propagation, training.clients, self.aggregator.learnable)
        protection = self.prediction.guard.protection
        everything = protection.update.is_bounded or not protection.steps.is_inert
        x = None if everything else self.graph.x[training.sample]
        return noise_source(mechanism, rows, self.encoder, x, self.schedule.everyone_shares, self.seed)

    def _expected_batch(self) -> Tensor:
        """Expected batch size of each training client ``[K]``."""
        counts, size = self.schedule.training.counts.to(self.graph.x.dtype), self.local.batch_size
        return counts if size is None else counts.clamp_max(size)

    def _resumed(self, state: FederationState) -> FederationState:
        """The state with weights of its own, checked, and its exchange done."""
        require_weights(state.weights, self.model.shapes)
        weights = {name: weight.detach().to(self.graph.x, copy=True) for name, weight in state.weights.items()}
        return self._exchanged(replace(state, weights=weights))

    def _exchanged(self, state: FederationState) -> FederationState:
        """The state with the exchange of its round done: uploads renewed, representations at hand."""
        if state.exchange is not None:
            return state
        uploaded_in = state.uploaded_in.index_fill(0, self.schedule.who_shares(state.round), state.round)
        enrolled_in = torch.where(state.enrolled_in < 0, uploaded_in, state.enrolled_in)
        standing, history = None, state.history
        if not self.schedule.everyone_shares:
            standing, in_use = uploaded_in, set(uploaded_in.unique().tolist())
            history = {number: weights for number, weights in history.items() if number in in_use}
        made = exchange(self.prediction.guard, state.round, state.weights, standing, history)
        return replace(state, uploaded_in=uploaded_in, enrolled_in=enrolled_in, history=history, exchange=made)
