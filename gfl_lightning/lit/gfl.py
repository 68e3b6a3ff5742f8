"""GFL-APPNP and its relatives as a LightningModule."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import torch
from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import Predictor, Report
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.exchange.scoring import Scoring
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import Estimator, LocalTraining, Path
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.personal.terms import Terms
from gfl_lightning.federated.protection.release_facts import data_mark, release_facts, sharing_epsilon
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.federated.server.weighting import Weighting
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.lit.options import described
from gfl_lightning.lit.private_flow import PRIVATE, outside_the_guarantee, steered_by_data
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model
from gfl_lightning.models.personal.gate import Gate
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.models.personal.own_slopes import OwnSlopes
from gfl_lightning.models.personal.personal import Personal
from gfl_lightning.models.personal.shared import Shared
from gfl_lightning.parts import describe
from gfl_lightning.privacy.account import PrivacyAccount
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.multi_bit import MultiBit
from gfl_lightning.privacy.randomise.once import RandomisedOnce, what_is_released
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.report import records_report, require_claim
from gfl_lightning.privacy.randomise.subset import Subset
from gfl_lightning.privacy.randomise.withheld import Withheld
from gfl_lightning.privacy.report import PrivacyReport

KNOWN = (SGC, Identity, LearnablePolynomial, Linear, Momentum, FedAdam, OwnLevel, OwnSlopes, Gate)  # by short names too
KNOWN_RECORDS = (SharedLabels, Rotated, RandomisedOnce, Subset, MultiBit, GaussianDirection, Withheld, Piecewise)

NOBODYS = Terms(torch.empty(0), torch.empty(0))


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
        num_features: d of the data, linked to them.
        num_classes: c, linked to the data.
        encoder: Ψ_h.
        aggregator: Ψ_G; ``Identity`` is plain federated learning (FedMLP).
        estimator: ``compensated``, ``v1`` (no ∇C_k) or ``exact`` (a research oracle).
        local: the clients' optimizer: η, I, batches.
        personal: terms of each client's own, never uploaded: ``OwnLevel``, ``OwnSlopes``, ``Gate``.
        server: what turns the clients' average into the next W̄.
        weighting: ``uniform`` average over clients, or by ``samples``.
        participation: who takes part in a round.
        records: what clients take part with: their samples as they are, with their labels as shared features, or
            randomised once.
        protection: bounds and noise on what clients upload.
        guarantee: what is claimed of it, and a budget.
        protocol: ``jacobian`` (the paper) or ``gram``: what is sent, not what is computed.
        path: ``auto``, ``dual``, ``primal``, ``linear`` or ``general``: how it is computed, not what comes out.
        seed: of the initial weights, batches and participation.
        noise_seed: draws noise from a seed, so that the run can be repeated: it is not private. By default noise is
            drawn from the operating system.
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
        personal: Personal = Shared(),  # noqa: B008
        server: ServerOptimizer = Average(),  # noqa: B008
        weighting: Weighting = "uniform",
        participation: Participation = Participation(),  # noqa: B008
        records: Records = AsTheyAre(),  # noqa: B008
        protection: Protection = Protection(),  # noqa: B008
        guarantee: Guarantee = Guarantee(),  # noqa: B008
        protocol: ProtocolName = "jacobian",
        path: Path = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        options = described(locals())
        require_count("seed", seed, least=0)
        model = Model(SizedEncoder(encoder, records.num_features(num_features, num_classes), num_classes), aggregator)
        weights = model.initial_weights(generator(seed, Stream.WEIGHTS))
        super().__init__(weights, num_features, num_classes, local.lr, lr_scheduler)
        self.model, self.records = model, records
        self.save_hyperparameters(options)
        self.estimator: Estimator = estimator
        self.local, self.server, self.participation, self.personal = local, server, participation, personal
        self.weighting: Weighting = weighting
        self.protocol: ProtocolName = protocol
        self.path: Path = path
        self.seed = seed
        self.noise_key = NoiseKey.fresh() if noise_seed is None else NoiseKey.of_seed(noise_seed)
        self._saved_key: str | None = None
        self._data_mark: str | None = None
        self.account = PrivacyAccount(protection, guarantee)
        self._kept, self._kept_terms = torch.empty(0), NOBODYS
        self._accounts = not protection.is_inert or guarantee != Guarantee()

    def engine_on(self, graph: ClientGraph, rounds: int) -> Federation:
        """The federation on a graph, its protection planned for so many rounds."""
        graph, protection = self._seen(graph), self.account.in_force
        if self._accounts and not self._randomises:
            schedule = Schedule.of(
                graph, self.participation, self.local, self.seed, every_class=not self.account.protects
            )
            colluding = self.account.guarantee.colluding
            facts = release_facts(graph, self.model, self.estimator, schedule, self.weighting, colluding)
            self._identify(graph)
            self._data_mark = data_mark(self._key(), graph)
            protection = self.account.plan(facts, schedule.attendance, rounds, self._rounds_between_events())
        return self.federation_on(graph, self.seed, protection)

    def federation_on(self, graph: ClientGraph, seed: int, protection: Protection) -> Federation:
        """The federation on a graph under a protection, whatever was planned."""
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
            seed,
            protection,
            self.personal,
            self._key(),
        )

    def predictor_on(self, graph: ClientGraph) -> Predictor:
        """Ã_kk h_{k,s} + C_k, every client sharing as protected as in the rounds that were made.

        Clients that are placed in the network of the training are told what its clients have shared last.
        """
        model, placement = self.model, self.placement
        if placement is not None:
            return Scoring(self.records.at_home(graph), model, placement, self.shared(), self.personal, self.terms())
        parts = (model.encoder.encoder, model.aggregator, self.account.in_force, self._key(), self.personal)
        return Prediction(self._seen(graph), *parts)

    def shared(self) -> Tensor:
        """ĥ of every client of the training at the parameters ``[N, c]``, as the server holds them."""
        if self._state is None:
            return self._kept
        if self.holds(self._placed(self.best).weights):
            return self._placed(self.best).shared
        if self.holds(self._state.weights):
            return self.federation.shared(self.state)
        return self.federation.prediction.shared_at(self.current_weights())

    def terms(self) -> Terms:
        """The personal terms of every client of the training at the parameters, which clients keep to themselves."""
        if self._state is None:
            return self._kept_terms
        prediction, weights = self.federation.prediction, self.current_weights()
        now = exchange(prediction.guard, self.round_of_the_parameters(), weights)
        return prediction.terms(replace(now, uploaded_h=self.shared()), weights)

    def _seen(self, graph: ClientGraph) -> ClientGraph:
        """The graph of the records that clients take part with; the same draws whenever it is asked for."""
        if self.records.is_inert:
            return graph
        if self._randomises:
            require_claim(self.records, self.account.stated, self.account.guarantee, self._accounts)
        source = self._key().source("records", hides=digest(repr(self.records), *what_is_released(graph)))
        return self.records.of(graph, source.generator())

    @property
    def _randomises(self) -> bool:
        """Whether the records promise something."""
        return math.isfinite(self.records.epsilon)

    def predict_logits(self) -> Tensor:
        """Logits of the samples of the data, without those of rows that are only shared; what they take is counted."""
        self._charge_evaluation()
        return super().predict_logits()[: self.num_samples]

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
        """Set the records, or fields of `Protection` and `Guarantee`, for the federation of the next set-up."""
        if "records" in options:
            self._take_part_with(options.pop("records"))
            if not options:
                return
        self.account.protect(**options)
        self._accounts = True

    def _take_part_with(self, records: Records) -> None:
        """Other records, and weights of their sizes from the start."""
        if records == self.records:
            return
        fresh = self._state is None and self._loaded_round == 0
        require(fresh, "records", "be those that the model was trained on, as others come too late", records)
        encoder = SizedEncoder(
            self.model.encoder.encoder, records.num_features(self.num_features, self.num_classes), self.num_classes
        )
        self.model, self.records = Model(encoder, self.model.aggregator), records
        self.set_parameters(self.model.initial_weights(generator(self.seed, Stream.WEIGHTS)))
        self.hparams["records"] = describe(records)

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
        data = getattr(getattr(self.trainer, "datamodule", None), "data_set", None)
        self.account.shares = data.statistics if isinstance(data, DataSet) else ()
        super().setup(stage)
        if stage == "fit" and self.account.claims:
            self.account.stops_adaptively = steered_by_data(self.trainer, self.account.validates, self._plateau())
            self.account.outside = outside_the_guarantee(self.trainer, self.account.guarantee.selection)

    def _plateau(self) -> bool:
        """Whether the rate is steered by a metric."""
        if self._lr_scheduler is None:
            return False
        carrier = torch.optim.SGD(self.parameters(), lr=self.lr)
        return isinstance(self._lr_scheduler(carrier), torch.optim.lr_scheduler.ReduceLROnPlateau)

    def _rounds_between_events(self) -> int:
        every = getattr(self._trainer, "val_check_interval", 1)
        return every if isinstance(every, int) else 1

    def _identify(self, graph: ClientGraph) -> None:
        """Tell the account which run this is: that of its key, with these options."""
        options = {name: value for name, value in self.hparams.items() if name not in ("guarantee", "path")}
        key, account = self._key(), self.account
        account.run = account.run or f"{key.name} {digest(repr(sorted(options.items()))).hex()[:8]}"
        account.noise_is_public = key.reproducible

    def configure_optimizers(self) -> Any:
        """The carrier of the rate; in a protected fit a scheduler that watches a metric watches the private one."""
        made = super().configure_optimizers()
        if isinstance(made, dict) and self.account.claims:
            made["lr_scheduler"]["monitor"] = PRIVATE
        return made

    def begin_rounds(self, rounds_done: int, progress: dict[str, Any]) -> None:
        """Start a ledger, take up a saved one, or go on with the one at hand."""
        drawn = self.model.initial_weights(generator(self.seed, Stream.WEIGHTS))
        now = self.current_weights() if self._state is None else self._state.weights
        known = all(torch.equal(drawn[name].to(weight), weight) for name, weight in now.items())
        self.account.begin(rounds_done, progress.get("privacy"), known)

    def choose(self, report: Report) -> Best:
        """The round to keep: under a guarantee the last, unless a private loss chooses, or exact ones may."""
        account = self.account
        if not account.claims or account.guarantee.selection == "exact":
            return super().choose(report)
        if account.validates and self.best.round and not math.isinf(self.best.val_loss):
            return self.best
        kept = Best(self.state.round, math.inf, self.state.weights, shared=self.federation.shared(self.state))
        return kept if account.validates else replace(kept, val_loss=report.metrics["val"].loss)

    def validation_metrics(self) -> dict[str, float]:
        """Metrics of the current parameters, with the private validation loss, which may choose the round to keep."""
        metrics, account = super().validation_metrics(), self.account
        if not account.validates or not self.holds(self.state.weights):
            return metrics
        account.charge_validation()
        private = self.federation.private_val_loss(self.state)
        inside = account.claims and account.guarantee.selection == "inside"
        if inside and private < self.best.val_loss:
            shared = self.federation.shared(self.state)
            self.best = Best(self.state.round, private, self.state.weights, shared=shared)
        return metrics | {PRIVATE: private}

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split at the parameters; what is shared for them is counted."""
        self._charge_evaluation()
        return super().evaluate()

    def _charge_evaluation(self) -> None:
        """Count the sharing that an evaluation of protected weights takes, unless it repeats one that was made."""
        predictor, account = self.predictor, self.account
        shared = predictor.prediction if isinstance(predictor, Federation) else predictor
        if not account.protects or not isinstance(shared, Prediction) or self.model.aggregator.isolates:
            return
        guard, weights = shared.guard, self.current_weights()
        here = data_mark(self.noise_key, guard.table.graph)
        same_data = self._data_mark in (None, here)
        everyone = Participation.count(self.participation.share, shared.graph.num_clients) == shared.graph.num_clients
        mark = digest(here, weights).hex()

        def cost() -> float:
            return sharing_epsilon(account.in_force, account.guarantee, guard.table.graph)

        account.charge_evaluation(mark, everyone, same_data, cost)

    def charge_round(self) -> dict[str, float]:
        """Count the round before it is made; ε after it."""
        if self._randomises:
            epsilon = math.inf if self.noise_key.reproducible else self.records.epsilon
            return {"epsilon": epsilon, "epsilon_fellow": epsilon}
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
    def is_budgeted(self) -> bool:
        """Whether there is a privacy budget."""
        return self.account.guarantee.max_epsilon is not None

    @property
    def privacy(self) -> PrivacyReport | None:
        """What the records or the rounds so far have spent; ``None`` where nobody asked."""
        if self._randomises:
            return records_report(self.records, self.noise_key, self.account.shares)
        return self.account.report()

    def progress(self) -> dict[str, Any]:
        """The engine's, and the privacy spent."""
        return super().progress() | self.account.ledger_state()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep the protection too, so that nothing is ever evaluated or resumed without it."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["shared"] = self.shared().cpu()
        if not self.personal.is_inert:
            checkpoint["terms"] = {name: term.cpu() for name, term in vars(self.terms()).items()}
        if self.account.protects:
            told = {"noise_key": self.noise_key.name, "data": self._data_mark}
            checkpoint["protection"] = self.account.save(self.seed) | told
            report = self.account.report()
            if report is not None:
                checkpoint["privacy"] = report.public() | {"outside": list(self.account.outside)}
        if self._randomises:
            checkpoint["noise_key"] = self.noise_key.name

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take up its protection."""
        super().on_load_checkpoint(checkpoint)
        self._kept = checkpoint.get("shared", torch.empty(0))
        self._kept_terms = Terms(**checkpoint.get("terms", vars(NOBODYS)))
        saved = checkpoint.get("protection")
        self.account.load(saved, self.seed, self._loaded_progress.get("privacy"))
        self._accounts |= saved is not None
        self._saved_key = checkpoint.get("noise_key") if saved is None else saved["noise_key"]
        self._data_mark = None if saved is None else saved["data"]

    def keep_secrets(self, folder: FilePath) -> None:
        """Write the noise key, which no checkpoint holds, beside the checkpoints, unless it is found from there."""
        key, draws = self.noise_key, self.account.protects or self._randomises
        if draws and not key.reproducible and NoiseKey.find(key.name, folder) is None:
            key.save(folder)

    def _key(self) -> NoiseKey:
        """The noise key; that of a loaded checkpoint where there is one."""
        name, places = self._saved_key, self.checkpoint_folders
        if name is not None and name != self.noise_key.name:
            found = next((key for key in (NoiseKey.find(name, place) for place in places) if key is not None), None)
            if found is None:
                raise InputError(
                    f"ckpt_path must have its noise key beside it, as every upload would get other noise without it, "
                    f"got no {NoiseKey.file_name(name)} in {', '.join(map(str, places)) or 'a known folder'}."
                )
            self.noise_key = found
        return self.noise_key
