"""GFL-APPNP: the federation and its communication round."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from gfl_lightning.checks import require
from gfl_lightning.engine.evaluation import Evaluator, Metrics
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.exchange.exchange import Exchange, exchange
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood, rows_by_hop
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.dual import DualPath
from gfl_lightning.federated.local.general import GeneralPath
from gfl_lightning.federated.local.paths import Sizes, choose_path, require_protocol
from gfl_lightning.federated.local.primal import PrimalPath
from gfl_lightning.federated.local.problem import LocalPath, LocalProblem, rescaled
from gfl_lightning.federated.options import (
    Estimator,
    LocalTraining,
    Participation,
    Path,
    ProtocolName,
    Server,
    require_choice,
    require_rate,
)
from gfl_lightning.federated.protection.shield import Shield, require_protection
from gfl_lightning.federated.protocol.traffic import TrafficMeter
from gfl_lightning.federated.report import Reporter, RoundReport
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.averaging import server_step
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.propagation import hop_diagonals, hops, propagation
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.protection import Protection


class DivergedError(RuntimeError):
    """No client's update is finite any more; ``state`` is the last good one, where there is a federation."""

    def __init__(self, message: str, state: FederationState | None = None) -> None:
        super().__init__(message)
        self.state = state


class Federation:
    """Clients on a graph, a server, and the rounds between them.

    A round is a function of the state, the data and (seed, round): I local steps of the clients that train, from W̄
    and the representations that stand; the server's average; then the exchange of representations at the new W̄,
    whose metrics it reports.

    Args:
        graph: the clients and their samples.
        encoder: Ψ_h; by default the paper's, sized to the graph.
        aggregator: Ψ_G.
        estimator: ``compensated`` (∇C_k is shared), ``v1`` (only ĥ is) or ``exact``: others' representations
            recomputed at the client's own W_k, which no federation could do, to measure what staleness costs.
        local: the clients' optimizer.
        server: the server's.
        participation: who takes part.
        protocol: which messages carry ∇ĥ and the update; the trajectory of W̄ does not depend on it.
        path: how the local steps are computed; the result does not depend on it.
        seed: determines the initial weights, batches, participation and noise.
        protection: bounds and noise on what clients upload; ``None`` means neither.
    """

    def __init__(
        self,
        graph: ClientGraph,
        encoder: Encoder | None = None,
        aggregator: Aggregator | None = None,
        estimator: Estimator = "compensated",
        local: LocalTraining | None = None,
        server: Server | None = None,
        participation: Participation | None = None,
        protocol: ProtocolName = "jacobian",
        path: Path = "auto",
        seed: int = 0,
        protection: Protection | None = None,
    ) -> None:
        self.graph = graph
        self.encoder = encoder or Encoder(graph.num_features, graph.num_classes)
        self.aggregator = aggregator or APPNP()
        self.estimator: Estimator = estimator
        self.local = local or LocalTraining()
        self.server = server or Server()
        self.participation = participation or Participation()
        self.protocol: ProtocolName = protocol
        self.seed = seed
        self.protection = protection or Protection()
        require(
            (self.encoder.num_features, self.encoder.num_classes) == (graph.num_features, graph.num_classes),
            "encoder",
            f"take {graph.num_features} features to {graph.num_classes} classes",
            (self.encoder.num_features, self.encoder.num_classes),
        )
        require(seed >= 0, "seed", "be at least 0", seed)
        require_choice("estimator", estimator, ("compensated", "v1", "exact"))
        require_protocol(protocol, self.encoder, self.aggregator, estimator, self.local)
        self._training = TrainingSet.of(graph)
        self.schedule = Schedule(
            self._training, graph.num_clients, self.participation, self.local, seed, self.protection.touches_steps
        )
        require(
            self.schedule.everyone_shares or estimator != "exact",
            "share",
            "be 1.0 for the exact estimator, which recomputes every representation",
            self.participation.share,
        )
        self._table = SampleTable.of(graph)
        K, n = self._training.sample.shape
        sizes = Sizes(K, n, graph.num_clients, len(self._table.shared))
        dp_sgd = self.protection.touches_steps
        self.path: Path = choose_path(path, sizes, self.encoder, self.aggregator, estimator, self.local, dp_sgd)
        self.propagation = propagation(graph, self.aggregator.gamma, graph.x.dtype)
        self._near = Neighbourhood.of(self.propagation, self._training.clients)
        self._evaluator = Evaluator(graph)
        self.isolated = self.propagation.is_identity and not self.aggregator.learnable
        require_protection(self.protection, protocol, estimator, self.isolated)
        hops_sent = len(self.aggregator.gamma) if self.aggregator.learnable else 1
        meter = TrafficMeter(
            self.encoder,
            hops_sent,
            self.aggregator.learnable,
            self.isolated,
            estimator != "v1" and not self.isolated,
            graph.x.element_size(),
        )
        self._reporter = Reporter(graph, self.schedule, meter, protocol)

    def __deepcopy__(self, memo: dict[int, object]) -> Federation:
        return self  # it never changes, so a copy may share it

    def start(self, weights: Weights | None = None) -> FederationState:
        """The state before the first round, after the exchange at W̄; Glorot weights unless some are given."""
        if weights is None:
            weights = self.encoder.initial_weights(generator(self.seed, Stream.WEIGHTS), self.graph.x.dtype)
            if self.aggregator.learnable:
                weights["gamma"] = self.aggregator.gamma.to(self.graph.x.dtype)
        self._check_weights(weights)
        weights = {name: weight.detach().to(self.graph.x, copy=True) for name, weight in weights.items()}
        never = torch.full((self.graph.num_clients,), -1, device=self.graph.x.device)
        return self._exchanged(FederationState(0, weights, never, never))

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
        average = result.average if self.shield is None else self.shield.uploaded(problem, result, state.round)
        weights, moments = server_step(self.server, state.weights, average, state.moments)
        if moments and not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise DivergedError(
                f"server lr must be small enough for finite weights, got {self.server.lr}: in round {state.round + 1} "
                "the server's step made them non-finite.",
                state,
            )
        history = state.history if self.schedule.everyone_shares else {**state.history, state.round: state.weights}
        uploads = (state.uploaded_in, state.enrolled_in, history)
        after = self._exchanged(FederationState(state.round + 1, weights, *uploads, moments))
        trained = problem.training.clients
        return after, self._reporter.report(state, after, trained, result.skipped, self.evaluate(after))

    def evaluate(self, state: FederationState) -> dict[str, Metrics]:
        """Metrics of W̄ on each split."""
        return self._evaluator(self.logits(state))

    def logits(self, state: FederationState) -> Tensor:
        """Ã_kk h_{k,s}(W̄) + C_k of every sample ``[S, c]``; no pass over the encoder if the exchange just made one."""
        now = self._exchanged(state).exchange
        assert now is not None
        return self._logits(state.weights, now)

    def logits_of(self, weights: Weights, round_number: int | None = None) -> Tensor:
        """The same for any weights, every client sharing its representation at them; differentiable in the weights.

        With the number of a round the representations are protected as in the exchange after it; without one they
        are exact, as theory wants them and no server gets them.
        """
        self._check_weights(weights)
        guard = None if round_number is None or self.shield is None else self.shield.uploads
        return self._logits(weights, exchange(self._table, self.encoder, round_number or 0, weights, None, {}, guard))

    def metrics_of(self, weights: Weights, round_number: int | None = None) -> dict[str, Metrics]:
        """Metrics of any weights on each split, every client sharing its representation at them."""
        return self._evaluator(self.logits_of(weights, round_number))

    def _logits(self, weights: Weights, now: Exchange) -> Tensor:
        if "gamma" in weights:
            gamma = weights["gamma"]
            Z = torch.tensordot(gamma, hops(self.propagation.P, now.uploaded_h, len(gamma) - 1), 1)
        else:
            Z = self._near.everywhere(now.uploaded_h)
        if self._table.one_sample_each and now.everyone_shared and not self.protection.touches_hidden:
            return Z
        own = self._hop_diagonals @ weights["gamma"] if "gamma" in weights else self._near.everyones_own
        client = self.graph.client
        return Z[client] + own[client, None] * (now.h - now.uploaded_h[client])

    def local_problem(self, state: FederationState, lr: float | None = None) -> LocalProblem:
        """What the clients that train in the round from a state start from."""
        state = self._exchanged(state)
        assert state.exchange is not None
        everyone = LocalProblem(
            weights=state.weights,
            exchange=state.exchange,
            neighbourhood=self._near,
            training=self._training,
            batches=self.schedule.batches(state.round),
            chosen=None,
            vote=self.votes,
            lr=self.local.lr if lr is None else lr,
            steps=self.local.steps,
        )
        if self.shield is not None:
            everyone = self.shield.over(everyone, state.round, state.uploaded_in)
        places = self.schedule.training_places(state.round)
        return everyone if places is None else everyone.take(places)

    @cached_property
    def local_path(self) -> LocalPath:
        """How the local steps are computed, with what is known before training."""
        compensated = self.estimator == "compensated" and not self.isolated
        if self.path == "dual":
            return DualPath.prepare(self._table, self._training, self._near, compensated)
        if self.path == "primal":
            return PrimalPath(self._table, compensated)
        estimator: Estimator = "v1" if self.estimator == "compensated" and not compensated else self.estimator
        return GeneralPath.prepare(
            self._table,
            self.encoder,
            estimator,
            self.local,
            self.propagation,
            self._training.clients,
            self.aggregator.learnable,
        )

    @cached_property
    def shield(self) -> Shield | None:
        """What protects the uploads; ``None`` where nothing does."""
        protection, rows = self.protection, None
        if protection.is_inert:
            return None
        if protection.jacobian_std > 0:
            rows, _ = rows_by_hop(self.propagation, self._training.clients, self.aggregator.learnable)
        return Shield.of(
            protection,
            self._table,
            self._training,
            self.encoder,
            rows,
            self.schedule.everyone_shares,
            self.local.batch_size,
            self.seed,
        )

    @cached_property
    def votes(self) -> Tensor:
        """Weight of each training client in the average ``[K]``."""
        counts = self._training.counts.to(self.graph.x.dtype)
        return rescaled(counts if self.server.weighting == "samples" else torch.ones_like(counts))

    @cached_property
    def _hop_diagonals(self) -> Tensor:
        """(P^l)_kk of all clients ``[N, L]``."""
        every = torch.arange(self.graph.num_clients, device=self.graph.x.device)
        return hop_diagonals(self.propagation.P, every, len(self.propagation.gamma) - 1)

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
        guard = None if self.shield is None else self.shield.uploads
        made = exchange(self._table, self.encoder, state.round, state.weights, standing, history, guard)
        return replace(state, uploaded_in=uploaded_in, enrolled_in=enrolled_in, history=history, exchange=made)

    def _check_weights(self, weights: Weights) -> None:
        shapes: dict[str, tuple[int, ...]] = dict(self.encoder.shapes)
        if self.aggregator.learnable:
            shapes["gamma"] = tuple(self.aggregator.gamma.shape)
        found = {name: tuple(weight.shape) for name, weight in weights.items()}
        require(found == shapes, "weights", f"have the shapes {shapes}", found)
        bad = [name for name, weight in weights.items() if not bool(torch.isfinite(weight).all())]
        require(not bad, "weights", "be finite", f"non-finite entries in {', '.join(bad)}")
