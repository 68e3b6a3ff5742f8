"""GFL-APPNP: the federation and its communication round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.checks import require, require_choice, require_count, require_scheduled_rate
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import DivergedError, Engine, Report, require_weights
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood, rows_by_hop
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.local.options import ESTIMATORS, Estimator, LocalTraining, Path
from gfl_lightning.federated.local.paths import Sizes, choose_path, local_path
from gfl_lightning.federated.local.problem import LocalProblem
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.personal.allowed import require_personal
from gfl_lightning.federated.personal.offsets import NoOffset
from gfl_lightning.federated.protection.jacobian_noise import NoJacobianNoise
from gfl_lightning.federated.protection.jacobian_noise_sources import Marks, Silent, noise_source
from gfl_lightning.federated.protection.private_validation import private_loss
from gfl_lightning.federated.protection.shield import Shield, require_protection
from gfl_lightning.federated.protocol.choice import ProtocolName, require_protocol
from gfl_lightning.federated.protocol.traffic import TrafficMeter
from gfl_lightning.federated.report import Reporter, RoundReport
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.federated.server.weighting import WEIGHTINGS, Weighting, votes
from gfl_lightning.federated.state import FederationState, check_progress
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import Encoder, Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.models.personal.shared import Shared
from gfl_lightning.parts import describe
from gfl_lightning.privacy.noise_key import NoiseKey, digest
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
        seed: determines the initial weights, batches and participation.
        protection: bounds and noise on what clients upload.
        personal: terms of each client's own, which it never uploads.
        noise_key: what noise and Poisson samples are drawn from; a new one where there is none.
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
        personal: Personal = Shared(),  # noqa: B008
        noise_key: NoiseKey | None = None,
    ) -> None:
        require_choice("estimator", estimator, ESTIMATORS)
        require_choice("weighting", weighting, WEIGHTINGS)
        require_count("seed", seed, least=0)
        self.graph, self.aggregator, self.estimator, self.local = graph, aggregator, estimator, local
        self.server, self.participation, self.protocol, self.seed = server, participation, protocol, seed
        self.lr, self.updates_per_round = local.lr, local.steps
        self.noise_key = noise_key or NoiseKey.fresh()
        dp_sgd = not protection.steps.is_inert
        self.schedule = Schedule.of(graph, participation, local, seed, dp_sgd, self.noise_key, protection.is_inert)
        require(
            self.schedule.everyone_shares or estimator != "exact",
            "share",
            "be 1.0 for the exact estimator, which recomputes every representation",
            participation.share,
        )
        require_personal(personal, aggregator, estimator, protection)
        self.prediction = Prediction(graph, encoder, aggregator, protection, self.noise_key, personal)
        self.model, self.encoder = self.prediction.model, self.prediction.model.encoder
        require_protocol(protocol, self.encoder, aggregator, estimator, local)
        require_protection(protection, protocol, estimator, aggregator.isolates, graph.x)
        self.propagation = self.prediction.propagation
        self.votes = votes(self.schedule.training, weighting)
        self._near = Neighbourhood.of(self.propagation, self.schedule.training.clients)
        sizes = Sizes.of(self.schedule.training, self.prediction.table)
        self.path = choose_path(path, sizes, self.encoder, aggregator, estimator, local, protection)
        self.local_path = local_path(
            self.path, self.prediction.table, self.model, estimator, local, self.schedule.training, self._near
        )
        self.shield = Shield(self.prediction.guard, self._jacobian_noise(), self._expected_batch())
        estimating = len(self.schedule.training) if personal.estimates else 0
        jacobians = estimator != "v1" and not aggregator.isolates
        anchoring = self.prediction.personal.anchors
        meter = TrafficMeter(self.model, jacobians, graph.x.element_size(), estimating, anchoring)
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
            require_scheduled_rate("lr", lr)
        state = self._exchanged(state)
        problem = self.local_problem(state, lr)
        result = self.local_path(problem)
        if result.skipped == len(problem.training) and not self.protection.touches_models:
            raise DivergedError(
                f"lr must be small enough for finite updates, got {problem.lr}: in round {state.round + 1} the update "
                "of every training client became non-finite.",
                state,
            )
        average = self.shield.uploaded(problem, result, state.round, self._round_mark(state, problem.lr))
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
        metrics = self.evaluator(self.logits(after))
        if self.protection.is_inert:  # whether a protected run goes on must not depend on its data
            self.require_convergence(metrics, problem.lr, state)
        return after, self._reporter.report(state, after, problem.training.clients, result.skipped, metrics)

    def choose(self, best: Best, state: FederationState, report: Report) -> Best:
        """The lower validation loss, with the representations that stand uploaded."""
        chosen = super().choose(best, state, report)
        return replace(chosen, shared=self.shared(state)) if chosen is not best else best

    def shared(self, state: FederationState) -> Tensor:
        """ĥ of every client as it stands uploaded ``[N, c]``: what the server holds."""
        now = self._exchanged(state).exchange
        assert now is not None
        return now.uploaded_h

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
        check_progress(progress, round_number, self.graph.num_clients, self.model.shapes)
        return self._resumed(FederationState(round_number, weights, **progress))

    def logits(self, state: FederationState) -> Tensor:
        """Ã_kk h_{k,s}(W̄) + C_k of every sample ``[S, c]``; no pass over the encoder if the exchange just made one."""
        state = self._exchanged(state)
        assert state.exchange is not None
        assert state.terms is not None
        return self.prediction.after(state.exchange, state.weights, state.terms)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """The same for any weights, every client sharing its representation at them; differentiable in the weights."""
        return self.prediction.logits_of(weights, round_number)

    def private_val_loss(self, state: FederationState) -> float:
        """The clients' validation loss at W̄, each bounded and under noise of its own."""
        now = self._exchanged(state).exchange
        assert now is not None
        hides = digest(self._settings, state.uploaded_in, dict(now.marks))
        source = self.noise_key.source("validation", state.round, hides=hides)
        return private_loss(self.graph, self.logits(state), self.protection, source)

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
        noise: Callable[[int, Tensor, Marks], NoJacobianNoise],
    ) -> LocalProblem:
        """The local problem of the clients that train."""
        state = self._exchanged(state)
        assert state.exchange is not None
        near, offset = self._personal_view(state)
        lr = self.local.lr if lr is None else lr
        hides = self._round_mark(state, lr)
        everyone = LocalProblem(
            weights=state.weights,
            exchange=state.exchange,
            neighbourhood=near,
            training=self.schedule.training,
            batches=self.schedule.batches(state.round, hides),
            chosen=None,
            vote=self.votes,
            lr=lr,
            steps=self.local.steps,
            protection=protection,
            offset=offset,
            noise=noise(state.round, state.uploaded_in, state.exchange.marks),
            step_guard=self.shield.steps(state.round, hides),
        )
        places = self.schedule.training_places(state.round)
        return everyone if places is None else everyone.take(places)

    def _personal_view(self, state: FederationState) -> tuple[Neighbourhood, NoOffset]:
        """Ã as training clients see it through their gates, and what their own terms add to their outputs."""
        personal, training = self.prediction.personal, self.schedule.training
        if personal.is_inert:
            return self._near, NoOffset()
        assert state.terms is not None
        near = self._near.gated(state.terms.gate[training.clients]) if personal.gated else self._near
        return near, personal.offset(state.terms, training)

    def _round_mark(self, state: FederationState, lr: float) -> bytes:
        """What the updates of a round depend on, in 32 bytes; nothing where no noise is to be bound to them."""
        assert state.exchange is not None
        if not self.protection.touches_models or self.noise_key.reproducible:
            return b""
        return digest(self._settings, lr, state.uploaded_in, dict(state.exchange.marks))

    @cached_property
    def _settings(self) -> bytes:
        """What the updates of every round depend on beside W̄, the data and the uploads."""
        parts = (self.local, self.participation, self.aggregator)
        return digest(*(describe(part) for part in parts), self.estimator, self.votes, self.path, self.seed)

    def _jacobian_noise(self) -> Silent:
        """Where noise on ∇ĥ_j comes from; what no client reads is drawn after the steps, if no norm asks for it."""
        mechanism, training = self.prediction.guard.protection.jacobian, self.schedule.training
        if not mechanism.is_noisy:
            return Silent()
        rows, _ = rows_by_hop(self.propagation, training.clients, self.aggregator.learnable)
        protection = self.prediction.guard.protection
        everything = protection.update.is_bounded or not protection.steps.is_inert
        x = None if everything else self.graph.x[training.sample]
        return noise_source(mechanism, rows, self.encoder, x, self.schedule.everyone_shares, self.noise_key)

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
        state = replace(state, uploaded_in=uploaded_in, enrolled_in=enrolled_in, history=history)
        return replace(state, exchange=made, terms=self.prediction.terms(made, state.weights))
