"""What a federation is about to do, as plain data that the server and every site hold alike."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gfl_lightning.checks import InputError, require, require_choice, require_count
from gfl_lightning.deploy.masking.noise import NoiseRule
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.site_party import PartyOptions
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.deploy.topology import Topology, require_topology
from gfl_lightning.federated.local.options import ESTIMATORS, Estimator, LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.choice import ProtocolName, require_protocol
from gfl_lightning.federated.server.average import Average
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.federated.server.optimizer import ServerOptimizer
from gfl_lightning.federated.server.weighting import WEIGHTINGS, Weighting
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.records.records import Records
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model
from gfl_lightning.parts import build, describe
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.multi_bit import MultiBit
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.report import require_apart, require_claim
from gfl_lightning.privacy.randomise.subset import Subset
from gfl_lightning.privacy.randomise.withheld import Withheld

KNOWN = (SGC, Identity, LearnablePolynomial, Linear, Momentum, FedAdam)  # loaded, so that a description finds them
KNOWN_RECORDS = (SharedLabels, RandomisedOnce, Subset, MultiBit, GaussianDirection, Withheld)
PARTS: Mapping[str, type[Any]] = {
    "encoder": Encoder,
    "aggregator": Aggregator,
    "local": LocalTraining,
    "server": ServerOptimizer,
    "participation": Participation,
    "records": Records,
    "protection": Protection,
    "masking": Masking,
    "guarantee": Guarantee,
}


@dataclass(frozen=True)
class Plan:
    """The method and its parts, the number of rounds, and how tables are read; the default is the paper's method.

    >>> from gfl_lightning.graphs.tables.settings import Settings
    >>> plan = Plan(TablePlan(Settings()), rounds=10)
    >>> Plan.from_state(plan.state()) == plan
    True

    Args:
        tables: how every site reads its table.
        rounds: how many rounds are made.
        encoder: Ψ_h.
        aggregator: Ψ_G.
        estimator: ``compensated`` or ``v1``.
        local: the clients' optimizer.
        server: the server's.
        participation: who takes part in a round.
        weighting: of the clients in the average.
        records: what clients take part with, made at their site.
        protection: bounds and noise on what clients upload.
        guarantee: what the account of each site claims of it, and its budget.
        protocol: which messages carry ∇ĥ and the update.
        seed: of the initial weights, batches and participation; noise comes from the operating system.
        timeout: seconds that the server waits for a site's answer in a round.
        least_sites: with fewer sites than these answering a round is not made.
        topology: ``one_server``, or ``two_servers`` of which neither sees ĥ_j and ∇ĥ_j.
        release: whether uploads are dropped as soon as aggregates are sent; a client that does not share then
            contributes nothing.
        masking: whether and how the server sees sums alone.
        metrics: whether sites report sums of losses and of right predictions; never where uploads are protected.
    """

    tables: TablePlan
    rounds: int
    encoder: Encoder = MLP()  # noqa: RUF009  # parts are frozen
    aggregator: Aggregator = APPNP()  # noqa: RUF009
    estimator: Estimator = "compensated"
    local: LocalTraining = LocalTraining()  # noqa: RUF009
    server: ServerOptimizer = Average()  # noqa: RUF009
    participation: Participation = Participation()  # noqa: RUF009
    weighting: Weighting = "uniform"
    records: Records = AsTheyAre()  # noqa: RUF009
    protection: Protection = Protection()  # noqa: RUF009
    guarantee: Guarantee = Guarantee()  # noqa: RUF009
    protocol: ProtocolName = "jacobian"
    seed: int = 0
    timeout: float = 600.0
    least_sites: int = 1
    topology: Topology = "one_server"
    release: bool = False
    masking: Masking = Masking()  # noqa: RUF009
    metrics: bool = True

    def __post_init__(self) -> None:
        require_count("max_steps", self.rounds)
        require_choice("estimator", self.estimator, ESTIMATORS)
        require(
            self.estimator != "exact",
            "estimator",
            "be compensated or v1 in a deployment, as no client can recompute others' representations",
            self.estimator,
        )
        require_choice("weighting", self.weighting, WEIGHTINGS)
        require_count("seed", self.seed, least=0)
        require_count("least_sites", self.least_sites)
        seconds = isinstance(self.timeout, (int, float)) and not isinstance(self.timeout, bool)
        require(seconds and 0 < self.timeout < math.inf, "timeout", "be positive", self.timeout)
        shares_jacobians = self.estimator == "compensated" and not self.aggregator.isolates
        require_topology(self.topology, self.release, self.masking.on, self.protocol, shares_jacobians)
        split = self.masking.split is not None
        require(self.masking.on or not split, "split", "be left out where sums are not masked", self.masking.split)
        alone = self.protection.steps.is_inert and self.weighting == "uniform"
        require(alone or not split, "split", "be left out with DP-SGD or unequal votes", self.masking.split)
        assert self.noise
        require_protocol(self.protocol, self.model(1, 2).encoder, self.aggregator, self.estimator, self.local)
        self._require_records()
        private = not self.protection.is_inert
        calibrated = self.guarantee.calibrate
        require(not calibrated, "calibrate", "be false in a deployment, where no party knows all that it takes", True)
        budget = self.guarantee.max_epsilon
        promised = private or self.randomises
        require(promised or budget is None, "max_epsilon", "be left out where nothing is protected", budget)
        ledger = self.guarantee.ledger
        require(ledger is None, "ledger", "be left out of a deployment, where every site keeps its own", ledger)
        require(
            not private or self.protocol == "jacobian",
            "protocol",
            "be jacobian where uploads are protected, as the factors of the Gram protocol carry the sample itself",
            self.protocol,
        )

    def _require_records(self) -> None:
        """Refuse records that a site cannot make alone, and claims that they do not keep."""
        rule = "be made of a client's own rows in a deployment, whose plan the server knows"
        require(self.records.by_site, "records", rule, self.records)
        require_apart(self.records, self.protection)
        if self.randomises:
            require_claim(self.records, self.protection, self.guarantee, self.guarantee != Guarantee())
            weights = self.tables.class_weights
            require(
                weights is None, "class_weights", "be left out where labels are randomised, which they tell", weights
            )

    @property
    def randomises(self) -> bool:
        """Whether sites replace their rows by records that promise something."""
        return math.isfinite(self.records.epsilon)

    @property
    def noise(self) -> NoiseRule:
        """Who puts the stated noise on models."""
        return self.masking.noise(self.protection.update)

    @property
    def reports_metrics(self) -> bool:
        """Whether sites tell how W̄ scores; exact metrics are outside of what protection promises."""
        return self.metrics and self.protection.is_inert

    @property
    def reports_test(self) -> bool:
        """Whether they tell how it scores on test rows too, whose labels are never randomised."""
        return self.reports_metrics and not self.randomises

    def model(self, num_features: int, num_classes: int) -> Model:
        """Ψ_h and Ψ_G for tables of d features and c classes."""
        width = self.records.num_features(num_features, num_classes)
        return Model(SizedEncoder(self.encoder, width, num_classes), self.aggregator)

    def party(self, model: Model) -> PartyOptions:
        """What the clients have in common; where noise is split, models leave them with a bound alone."""
        compensated = self.estimator == "compensated"
        protection = self.protection
        if self.masking.split is not None and isinstance(protection.update, Gaussian):
            protection = replace(protection, update=replace(protection.update, std=0.0))
        return PartyOptions(model, self.local, self.protocol, compensated, protection)

    def state(self) -> dict[str, Any]:
        """Plain containers."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: describe(value) if name in PARTS else value for name, value in values.items()} | {
            "tables": self.tables.state()
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Plan:
        """From what :meth:`state` returned; only classes that are loaded can come of it."""
        known = {field.name for field in fields(cls)}
        if set(state) != known:
            raise InputError(f"plan must hold {', '.join(sorted(known))}, got {', '.join(sorted(state))}.")
        built = {name: build(value, PARTS[name]) if name in PARTS else value for name, value in state.items()}
        return cls(**built | {"tables": TablePlan.from_state(state["tables"])})

    @property
    def fingerprint(self) -> str:
        """Tells whether server and site hold the same plan."""
        return hashlib.sha256(json.dumps(self.state(), sort_keys=True).encode()).hexdigest()
