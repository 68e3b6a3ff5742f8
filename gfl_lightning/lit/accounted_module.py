"""What a federation's module promises: records, protection, noise key and account, over its whole life."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.cli import LRSchedulerCallable

from gfl_lightning.checks import require
from gfl_lightning.engine.best import Best
from gfl_lightning.engine.engine import Report
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.exchange.scoring import Scoring
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protection.release_facts import data_mark, sharing_epsilon
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.lit.private_flow import (
    INTERRUPTED,
    OTHER_RATE,
    OTHER_STOP,
    OTHER_WEIGHTS,
    PRIVATE,
    SHORTENED,
    Stopping,
    averages,
    is_fitting,
    outside_the_guarantee,
    rate_of_others,
    refuse_averaging,
    steered_by_data,
    time_is_over,
    unknown_rate,
)
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.schedulers import Timetable
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.model import Model
from gfl_lightning.parts import build, describe
from gfl_lightning.privacy.account import OTHER_START, PrivacyAccount
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.horizon import MOST_ROUNDS
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.account import RecordsAccount
from gfl_lightning.privacy.randomise.report import records_report, require_claim
from gfl_lightning.privacy.report import PrivacyReport
from gfl_lightning.privacy.shared_ledger import total_of


class AccountedModule(RoundModule):
    """A federation in rounds of which an account is kept: every sharing is counted before it is made, or refused.

    A subclass brings the model, who takes part and the seed, and how a federation is built from them.

    >>> from gfl_lightning import GFL
    >>> from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
    >>> module = GFL(8, 2)
    >>> module.protect(update=Gaussian(std=0.5, clip=1.0), max_epsilon=8.0)
    >>> module.is_budgeted
    True

    Args:
        weights: where training starts, by name.
        num_features: d.
        num_classes: c.
        lr: η.
        lr_scheduler: makes a torch scheduler of η.
        records: what clients take part with.
        protection: bounds and noise on what clients upload.
        guarantee: what is claimed of it, and a budget.
        noise_seed: draws noise from a seed, which is not private; from the operating system without.
    """

    model: Model
    participation: Participation
    seed: int

    def __init__(
        self,
        weights: Weights,
        num_features: int,
        num_classes: int,
        lr: float,
        lr_scheduler: LRSchedulerCallable | None,
        records: Records,
        protection: Protection,
        guarantee: Guarantee,
        noise_seed: int | None,
    ) -> None:
        super().__init__(weights, num_features, num_classes, lr, lr_scheduler)
        self.records = records
        self.noise_key = NoiseKey.fresh() if noise_seed is None else NoiseKey.of_seed(noise_seed)
        self.account = PrivacyAccount(protection, guarantee)
        self._saved_key: str | None = None
        self._data_mark: str | None = None
        self._draws = RecordsAccount()
        self._timetable = Timetable(None, lr)
        self._stopping = Stopping()
        self._in_rounds = False
        self._sharing: int | float | None = None
        self._own = {"records": records, **vars(protection), **vars(guarantee)}
        self._accounts = not protection.is_inert or guarantee != Guarantee()

    def _seen(self, graph: ClientGraph) -> ClientGraph:
        """The graph of the records that clients take part with; the same draws whenever it is asked for."""
        if self.records.is_inert:
            return graph
        if self._randomises:
            require_claim(self.records, self.account.stated, self.account.guarantee, self._accounts)
        source = self._key().source("records", hides=self._draws.hides(self.records, graph))
        return self.records.of(graph, source.generator())

    @property
    def _randomises(self) -> bool:
        """Whether the records promise something."""
        return math.isfinite(self.records.epsilon)

    @property
    def is_private(self) -> bool:
        """Whether uploads are protected, or made of records that promise something."""
        return self.account.protects or self._randomises

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
        """Set the records, or fields of `Protection` and `Guarantee`, for the federation of the next set-up.

        What the model was made with is not set otherwise: who states it and who protects by it may not be the same.
        """
        usual = {"records": AsTheyAre(), **vars(Protection()), **vars(Guarantee())}
        for name, value in options.items():
            own = self._own.get(name)
            once = own in (usual.get(name), value)
            require(once, name, f"be stated once, by the model or by a callback (the model states {own!r})", value)
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
        """Lightning's hook: what a protected fit may be steered by, and what its data tell besides."""
        if self.account.protects:
            refuse_averaging(self.trainer)
        data = getattr(getattr(self.trainer, "datamodule", None), "data_set", None)
        self.account.shares = data.statistics if isinstance(data, DataSet) else ()
        super().setup(stage)
        if stage == "fit" and self.account.claims:
            scheduler = self._scheduler_of(torch.optim.SGD(self.parameters(), lr=self.lr))
            self.account.stops_adaptively = steered_by_data(self.trainer, self.account.validates, scheduler)
            self.account.outside = outside_the_guarantee(self.trainer, self.account.guarantee.selection)
            self.account.shares += unknown_rate(scheduler)

    def _rounds_between_events(self) -> int:
        every = getattr(self._trainer, "val_check_interval", 1)
        if getattr(self._trainer, "limit_val_batches", 1) == 0:
            return MOST_ROUNDS
        return every if isinstance(every, int) else 1

    def _identify(self) -> None:
        """Tell the account which run this is: key, options, data and machine, whose sums differ in their last bits."""
        options = {name: value for name, value in self.hparams.items() if name != "guarantee"}
        key, account = self._key(), self.account
        computing = (torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability())
        machine = (*computing, str(self.device))
        account.settings = (key.name, repr(sorted(options.items())), self._data_mark, machine)
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
        account = self.account
        account.begin(rounds_done, progress.get("privacy"), known)
        if account.claims and account.is_shortened:
            account.outside += (SHORTENED,)
        live = [one.scheduler for one in getattr(self._trainer, "lr_scheduler_configs", [])]
        self._timetable = Timetable.of(self._lr_scheduler, self.lr, rounds_done, *live[:1])
        self._stopping, self._in_rounds = Stopping.of(self._trainer), True
        if self._randomises:
            started = () if rounds_done or known or account.guarantee.pretrained == "public" else (OTHER_START,)
            self._draws.doubt(*account.shares, *started)
            self._draws.charge(self.records, self._key(), account.guarantee)

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
        self._timetable.told(private)
        self._stopping.told(private)
        inside = account.claims and account.guarantee.selection == "inside"
        if inside and private < self.best.val_loss:
            shared = self.federation.shared(self.state)
            self.best = Best(self.state.round, private, self.state.weights, shared=shared)
        return metrics | {PRIVATE: private}

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split at the parameters; what is shared for them is counted."""
        self._charge_evaluation()
        return super().evaluate()

    def told(self, graph: ClientGraph) -> ClientGraph:
        """The data as a report may look at them: where labels in use were randomised, with what they became."""
        return replace(graph, y=self.predictor.graph.y[: graph.num_samples].to(graph.y)) if self._randomises else graph

    def calibrate(self) -> None:
        """Intervals of predicted numbers; none where labels are randomised, which tell nothing narrower than noise."""
        if not self._randomises:
            super().calibrate()

    def _charge_evaluation(self) -> None:
        """Count the sharing that an evaluation of protected weights takes, unless it repeats one that was made."""
        predictor, account = self.predictor, self.account
        if self._randomises and not isinstance(predictor, Scoring):
            self._draws.charge(self.records, self._key(), account.guarantee, *account.shares)
        shared = predictor.prediction if isinstance(predictor, Federation) else predictor
        if not isinstance(shared, Prediction) or self.model.aggregator.isolates:
            return
        account.note_a_sharing()
        if not account.protects:
            return
        guard, weights = shared.guard, self.current_weights()
        here = data_mark(self.noise_key, guard.table.graph)
        same_data = self._data_mark in (None, here)
        sharing = self.participation.share if self._sharing is None else self._sharing
        everyone = Participation.count(sharing, shared.graph.num_clients) == shared.graph.num_clients
        mark = digest(here, weights).hex()

        def cost() -> float:
            told = bool(account.shares) or self.noise_key.reproducible
            return math.inf if told else sharing_epsilon(account.in_force, account.guarantee, guard.table.graph)

        account.charge_evaluation(mark, everyone, same_data, cost)

    def charge_round(self) -> dict[str, float]:
        """Count the round before it is made; ε after it."""
        if self._randomises:
            epsilon = math.inf if self.noise_key.reproducible else self.records.epsilon
            return {"epsilon": epsilon, "epsilon_fellow": epsilon}
        expected = self._timetable.next()
        if self.account.claims and self._trainer is not None and rate_of_others(self.trainer, expected):
            self.account.doubt(OTHER_RATE)
        return self.account.charge()

    def end_rounds(self) -> None:
        """Called after the last round of a fit: why it has stopped may tell about its data."""
        self._note_the_stop()
        self._in_rounds = False

    def _note_the_stop(self) -> None:
        """Promise nothing where something that is not known ends the fit; say so where its rounds were broken off."""
        account = self.account
        if not self._in_rounds or not account.claims:
            return
        if not is_fitting(self._trainer):
            account.outside += (INTERRUPTED,) if INTERRUPTED not in account.outside else ()
        elif self.trainer.fit_loop.done and not (
            account.is_whole or self._stopping.is_over or time_is_over(self.trainer)
        ):
            account.doubt(OTHER_STOP)

    def require_free_weights(self) -> None:
        """Refuse weights of no round where uploads are protected: they would be shared under noise already used."""
        if self._randomises and not averages(self._trainer):
            self._draws.doubt(OTHER_WEIGHTS)
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
            total = total_of(self.account.guarantee.ledger)
            gaps = dict.fromkeys((*self._draws.gaps, *self.account.shares))
            return records_report(self.records, self.noise_key, tuple(gaps), total)
        self._note_the_stop()
        return self.account.report()

    @property
    def _is_of_a_round(self) -> bool:
        """Whether the parameters are the weights of the best round, of the last one, or those of the checkpoint."""
        rounds = [self._placed(self.best).weights, {} if self._state is None else self._state.weights]
        return any(self.holds(weights) for weights in rounds) or (self._state is None and self.holds_the_loaded)

    def progress(self) -> dict[str, Any]:
        """The engine's, and the privacy spent."""
        return super().progress() | self.account.ledger_state()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep the protection too, so that nothing is ever evaluated or resumed without it."""
        super().on_save_checkpoint(checkpoint)
        if self.account.protects:
            told = {"noise_key": self.noise_key.name, "data": self._data_mark}
            checkpoint["protection"] = self.account.save(self.seed) | told
        if self._randomises:
            checkpoint["noise_key"], checkpoint["records"] = self.noise_key.name, self._draws.first
            checkpoint["records_gaps"] = list(self._draws.gaps)
        report = self.privacy
        if report is not None:
            if not self._is_of_a_round and not (self._randomises and averages(self._trainer)):
                report = replace(report, epsilon=math.inf, gaps=(*report.gaps, OTHER_WEIGHTS))
            checkpoint["privacy"] = report.public() | {"outside": list(self.account.outside)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take up its protection."""
        super().on_load_checkpoint(checkpoint)
        saved = checkpoint.get("protection")
        self.account.load(saved, self.seed, self._loaded_progress.get("privacy"))
        self._accounts |= saved is not None
        self._saved_key = checkpoint.get("noise_key") if saved is None else saved["noise_key"]
        self._data_mark = "" if saved is None else saved["data"]
        kept = checkpoint["hyper_parameters"].get("participation")
        self._sharing = None if kept is None else build(kept, Participation).share
        self._draws.first, self._draws.gaps = checkpoint.get("records"), tuple(checkpoint.get("records_gaps", ()))
        file = self.account.guarantee.ledger
        there = file is None or self.account.was_told("ledger") or Path(file).is_file()
        require(there, "ledger", "be there, as a run writes to it before its checkpoints, which make no file", file)

    def keep_secrets(self, folder: Path) -> None:
        """Write the noise key, which no checkpoint holds, beside the checkpoints, unless it is found from there."""
        key, draws = self.noise_key, self.account.protects or self._randomises
        if draws and not key.reproducible and NoiseKey.find(key.name, folder) is None:
            key.save(folder)

    def _key(self) -> NoiseKey:
        """The noise key; that of a loaded checkpoint where there is one."""
        name = self._saved_key
        if name is not None and name != self.noise_key.name:
            self.noise_key = NoiseKey.beside(name, self.checkpoint_folders)
        return self.noise_key
