"""GFL-APPNP and its relatives as a LightningModule."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.cli import LRSchedulerCallable

from gfl_lightning.checks import require, require_count
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import Estimator, LocalTraining, Path
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.federated.server.weighting import Weighting
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.options import described
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.account import PrivacyAccount
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.report import PrivacyReport

KNOWN = (SGC, Identity, LearnablePolynomial, Momentum, FedAdam)  # for checkpoints and short names


class GFL(RoundModule):
    """Graph federated learning with hidden representation sharing; the defaults are the paper's GFL-APPNP.

    >>> from gfl_lightning.graphs.datasets.dnc import DNC
    >>> data = DNC(num_clients=50, num_features=8)
    >>> model = GFL(8, 2, aggregator=SGC(k=2), local=LocalTraining(lr=0.5, steps=5))
    >>> engine = model.engine_on(data.graph, rounds=3)
    >>> state, report = engine.round(engine.start(model.current_weights()))
    >>> state.round, report.trained
    (1, 5)

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        encoder: Ψ_h.
        aggregator: Ψ_G; ``Identity`` is plain federated learning (FedMLP).
        estimator: ``compensated``, ``v1`` (no ∇C_k) or ``exact`` (a research oracle).
        local: the clients' optimizer: η, I, batches.
        server: what turns the clients' average into the next W̄.
        weighting: ``uniform`` average over clients, or by ``samples``.
        participation: who takes part in a round.
        protection: bounds and noise on what clients upload.
        guarantee: what is claimed of it, and a budget.
        protocol: ``jacobian`` (the paper) or ``gram``: what is sent, not what is computed.
        path: ``auto``, ``dual``, ``primal`` or ``general``: how it is computed, not what comes out.
        seed: of the initial weights, batches, participation and noise.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        encoder: Encoder = MLP(),  # noqa: B008  # parts are frozen
        aggregator: Aggregator = APPNP(),  # noqa: B008
        estimator: Estimator = "compensated",
        local: LocalTraining = LocalTraining(),  # noqa: B008
        server: ServerOptimizer = Average(),  # noqa: B008
        weighting: Weighting = "uniform",
        participation: Participation = Participation(),  # noqa: B008
        protection: Protection = Protection(),  # noqa: B008
        guarantee: Guarantee = Guarantee(),  # noqa: B008
        protocol: ProtocolName = "jacobian",
        path: Path = "auto",
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        options = described(locals())
        require_count("seed", seed, least=0)
        model = Model(SizedEncoder(encoder, num_features, num_classes), aggregator)
        weights = model.initial_weights(generator(seed, Stream.WEIGHTS))
        super().__init__(weights, num_features, num_classes, local.lr, lr_scheduler)
        self.model = model
        self.save_hyperparameters(options)
        self.estimator: Estimator = estimator
        self.local, self.server, self.participation = local, server, participation
        self.weighting: Weighting = weighting
        self.protocol: ProtocolName = protocol
        self.path: Path = path
        self.seed = seed
        self.account = PrivacyAccount(protection, guarantee)
        self._accounts = not protection.is_inert or guarantee != Guarantee()

    def engine_on(self, graph: ClientGraph, rounds: int) -> Federation:
        """The federation on a graph, its protection planned for so many rounds."""
        protection = self.account.in_force
        if self._accounts:
            schedule = Schedule.of(graph, self.participation, self.local, self.seed)
            facts = release_facts(graph, self.model, self.estimator, schedule, self.weighting)
            protection = self.account.plan(facts, schedule.attendance, rounds)
        return Federation(
            graph,
            self.model.encoder.encoder,
            self.model.aggregator,
            self.estimator,
            self.local,
            self.server,
            self.participation,
            self.weighting,
            self.protocol,
            self.path,
            self.seed,
            protection,
        )

    def predictor_on(self, graph: ClientGraph) -> Prediction:
        """Ã_kk h_{k,s} + C_k, every client sharing as protected as in the rounds that were made."""
        model = self.model
        return Prediction(graph, model.encoder.encoder, model.aggregator, self.account.in_force, self.seed)

    @property
    def federation(self) -> Federation:
        """The federation of the last fit."""
        assert isinstance(self.engine, Federation)
        return self.engine

    @property
    def state(self) -> FederationState:
        """The federation's state after the last round."""
        state = super().state
        assert isinstance(state, FederationState)
        return state

    def protect(self, **options: Any) -> None:
        """Set fields of `Protection` and `Guarantee`; the next set-up builds the federation with them."""
        self.account.protect(**options)
        self._accounts = True

    def setup(self, stage: str) -> None:
        """Lightning's hook: refuse averaged weights where uploads are protected."""
        callbacks = getattr(self.trainer, "callbacks", [])
        averaging = [type(one).__name__ for one in callbacks if isinstance(one, WeightAveraging)]
        require(
            not (averaging and self.account.protects),
            "callbacks",
            "hold no WeightAveraging where uploads are protected, as averaged weights would be shared under used noise",
            averaging,
        )
        super().setup(stage)

    def begin_rounds(self, rounds_done: int, progress: dict[str, Any]) -> None:
        """Start a ledger, take up a saved one, or go on with the one at hand."""
        self.account.begin(rounds_done, progress.get("privacy"))

    def charge_round(self) -> dict[str, float]:
        """Count the round before it is made; ε after it."""
        return self.account.charge()

    def require_free_weights(self) -> None:
        """Refuse weights of no round where uploads are protected: they would be shared under noise already used."""
        require(
            not self.account.protects,
            "weights",
            "be those of a round where uploads are protected",
            "weights that a callback has put in",
        )

    @property
    def may_go_on(self) -> bool:
        """Whether the privacy budget, if there is one, allows another round."""
        return self.account.allows_another

    @property
    def privacy(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nobody asked."""
        return self.account.report()

    def progress(self) -> dict[str, Any]:
        """The engine's, and the privacy spent."""
        return super().progress() | self.account.ledger_state()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep the protection too, so that nothing is ever evaluated or resumed without it."""
        super().on_save_checkpoint(checkpoint)
        if self.account.protects:
            checkpoint["protection"] = self.account.save(self.seed)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take up its protection."""
        super().on_load_checkpoint(checkpoint)
        saved = checkpoint.get("protection")
        self.account.load(saved, self.seed, self._loaded_progress.get("privacy"))
        self._accounts |= saved is not None
