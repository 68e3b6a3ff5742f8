"""GFL-APPNP and its relatives as a LightningModule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor

from gfl_lightning.checks import require, require_count
from gfl_lightning.engine.engine import Predictor
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.engine.trial import trial_loss
from gfl_lightning.federated.afterwards.mix import Mix
from gfl_lightning.federated.afterwards.mixture import Mixed, Mixture, mark_of, mixture_of
from gfl_lightning.federated.exchange.exchange import exchange
from gfl_lightning.federated.exchange.prediction import Prediction
from gfl_lightning.federated.exchange.scoring import Scoring
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import Estimator, LocalTraining, Path
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.personal.terms import Terms
from gfl_lightning.federated.protection.release_facts import data_mark, release_facts
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.schedule import Schedule
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.federated.server.weighting import Weighting
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.graphs.records.rotated import Rotated
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.lit.accounted_module import AccountedModule
from gfl_lightning.lit.options import described
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.chosen_appnp import ChosenAPPNP
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
from gfl_lightning.parts import build, describe
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.multi_bit import MultiBit
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.report import require_apart
from gfl_lightning.privacy.randomise.subset import Subset
from gfl_lightning.privacy.randomise.withheld import Withheld

KNOWN = (SGC, ChosenAPPNP, Identity, LearnablePolynomial, Linear, Momentum, FedAdam, OwnLevel, OwnSlopes, Gate)
KNOWN_RECORDS = (SharedLabels, Rotated, RandomisedOnce, Subset, MultiBit, GaussianDirection, Withheld, Piecewise)

NOBODYS = Terms(torch.empty(0), torch.empty(0))


class GFL(AccountedModule):
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
        mix: models that each client weighs by its validation samples once the rounds are over.
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
        mix: Mix = Mix(),  # noqa: B008
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
        super().__init__(
            weights, num_features, num_classes, local.lr, lr_scheduler, records, protection, guarantee, noise_seed
        )
        self.model = model
        self.save_hyperparameters(options)
        self.estimator: Estimator = estimator
        self.local, self.server, self.participation, self.personal = local, server, participation, personal
        self.mix, self.mixture = mix, Mixture()
        self.weighting: Weighting = weighting
        self.protocol: ProtocolName = protocol
        self.path: Path = path
        self.seed = seed
        self._kept, self._kept_terms = torch.empty(0), NOBODYS

    def engine_on(self, graph: ClientGraph, rounds: int) -> Federation:
        """The federation on a graph, its protection planned for so many rounds."""
        self.participation.require_fit(len(graph.training_clients), graph.num_clients)
        graph, protection, self.mixture = self._seen(graph), self.account.in_force, Mixture()
        unprotected = protection.is_inert and not self._randomises
        require(unprotected or self.mix.is_inert, "mix", "be left out where uploads are protected", self.mix)
        require_apart(self.records, protection)
        self._settle(graph, rounds)
        if self._accounts and not self._randomises:
            schedule = Schedule.of(
                graph, self.participation, self.local, self.seed, every_class=not self.account.protects
            )
            colluding = self.account.guarantee.colluding
            facts = release_facts(graph, self.model, self.estimator, schedule, self.weighting, colluding)
            self._data_mark = data_mark(self._key(), self.records.heard(graph, self.model.aggregator.gamma))
            self._identify()
            protection = self.account.plan(facts, schedule.attendance, rounds, self._rounds_between_events())
        return self.federation_on(graph, self.seed, protection)

    def federation_on(
        self, graph: ClientGraph, seed: int, protection: Protection, key: NoiseKey | None = None
    ) -> Federation:
        """The federation on a graph under a protection, whatever was planned, with its own noise or that of a key."""
        return Federation(
            self.records.heard(graph, self.model.aggregator.gamma),
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
            key or self._key(),
        )

    def _settle(self, graph: ClientGraph, rounds: int) -> None:
        """Choose the aggregator where several are offered, by trials on the records that it will aggregate."""
        offered = self.model.aggregator
        if not isinstance(offered, ChosenAPPNP):
            return
        fixed = "be a fixed one where"
        require(
            not self.account.protects, "aggregator", f"{fixed} uploads are protected, as trials upload too", offered
        )
        require(bool(graph.mask(Split.VAL).any()), "aggregator", f"{fixed} nobody has validation samples", offered)
        length = min(offered.rounds, rounds) if rounds > 0 else offered.rounds
        losses = []
        for candidate in offered.candidates:
            self.model = Model(self.model.encoder, candidate)
            losses.append(trial_loss(self.federation_on(graph, self.seed, self.account.in_force), length))
        self.model = Model(self.model.encoder, offered.candidates[losses.index(min(losses))])

    @property
    def chosen_parts(self) -> dict[str, Any]:
        """What was chosen in place of a stated part."""
        used = describe(self.model.aggregator)
        return {} if used == self.hparams["aggregator"] else {"chosen": used}

    def predictor_on(self, graph: ClientGraph) -> Predictor:
        """Ã_kk h_{k,s} + C_k, every client sharing as protected as in the rounds that were made.

        Clients that are placed in the network of the training are told what its clients have shared last.
        """
        model, placement = self.model, self.placement
        if placement is not None:
            home = self.records.at_home(graph)
            return self._mixed(Scoring(home, model, placement, self.shared(), self.personal, self.terms()))
        parts = (model.encoder.encoder, model.aggregator, self.account.in_force, self._key(), self.personal)
        return self._mixed(Prediction(self.records.heard(self._seen(graph), model.aggregator.gamma), *parts))

    def _mixed(self, base: Prediction | Scoring) -> Predictor:
        """What predicts for the clients of the training by their mixes; others take the model as it is trained."""
        if self.mixture.is_inert:
            return base
        if isinstance(base, Scoring):
            return Mixed(base, self.mixture, self.personal.ungated, base.placement.known)
        same = self.mixture.mark == mark_of(base.graph)
        return Mixed(base, self.mixture, self.personal.ungated, torch.arange(base.graph.num_clients)) if same else base

    def calibrate(self) -> None:
        """Let clients mix, and find the intervals of predicted numbers."""
        if not self.mix.is_inert:
            federation = self.federation
            weights, rounds = self.current_weights(), self.state.round
            self.mixture, sent = mixture_of(
                federation.prediction, weights, self.mix, self.local.lr, rounds, self._fedavg(federation.graph)
            )
            for way in ("up", "down"):
                for name in (f"bytes_{way}", f"printed_bytes_{way}"):
                    self.totals[name] = self.totals.get(name, 0) + sent[way]
            self._predictor = self._mixed(federation.prediction)
        super().calibrate()

    @property
    def heeded(self) -> dict[str, float]:
        """How much clients heed each model of their mix in the mean."""
        return dict(zip(self.mix.titles, self.mixture.weight.mean(0).tolist(), strict=False))

    def _fedavg(self, graph: ClientGraph) -> Federation:
        """The same federation without neighbours, where nobody hears a label."""
        return Federation(
            self.records.heard(graph, Identity().gamma),
            self.model.encoder.encoder,
            Identity(),
            local=self.local,
            server=self.server,
            participation=self.participation,
            weighting=self.weighting,
            seed=self.seed,
            personal=self.personal.ungated,
        )

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

    def predict_logits(self) -> Tensor:
        """Logits of the samples of the data, without those of rows that are only shared; what they take is counted."""
        self._charge_evaluation()
        return super().predict_logits()[: self.num_samples]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep what clients shared last, and what was chosen and mixed."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["shared"] = self.shared().cpu()
        checkpoint |= self.chosen_parts
        if not self.personal.is_inert:
            checkpoint["terms"] = {name: term.cpu() for name, term in self.terms().of_clients.items()}
        if not self.mixture.is_inert:
            checkpoint["mixture"] = self.mixture.record()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take them up."""
        super().on_load_checkpoint(checkpoint)
        if "chosen" in checkpoint:
            self.model = Model(self.model.encoder, build(checkpoint["chosen"], Aggregator))  # type: ignore[type-abstract]
        self._kept = checkpoint.get("shared", torch.empty(0))
        self._kept_terms = Terms(**checkpoint.get("terms", NOBODYS.of_clients))
        clients, terms = len(self._kept), len(self._kept_terms.gate)
        whole = self.personal.is_inert or terms == clients
        require(whole, "ckpt_path", f"hold personal terms of all {clients} clients that shared", terms)
        self.mixture = Mixture.of_record(checkpoint.get("mixture"))
        names = sorted(self.model.encoder.shapes)
        for one in filter(None, (self.mixture.fedavg, *self.mixture.tuned)):
            require(sorted(one) == names, "ckpt_path", f"hold models of its mixture by {', '.join(names)}", sorted(one))
