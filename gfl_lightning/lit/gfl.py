"""GFL-APPNP and its relatives as a LightningModule."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor, nn

from gfl_lightning.checks import InputError, require
from gfl_lightning.engine.evaluation import Metrics
from gfl_lightning.engine.randomness import Stream, generator
from gfl_lightning.federated.exchange.predictor import Predictor
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.options import (
    Estimator,
    LocalTraining,
    Participation,
    Path,
    ProtocolName,
    Server,
    require_choice,
)
from gfl_lightning.federated.state import FederationState
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.lit.round_module import RoundModule, RoundResult
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.privacy.account import PrivacyAccount
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.report import PrivacyReport


class GFL(RoundModule):
    """Graph federated learning with hidden representation sharing; the defaults are the paper's GFL-APPNP.

    Args:
        num_features: d, linked to the data.
        num_classes: c, linked to the data.
        hidden: widths of the encoder's hidden layers.
        activation: the encoder's activation.
        bias: whether the encoder's layers have a bias.
        aggregator: ``appnp``, ``sgc`` (P^M), ``identity`` (plain federated learning; FedMLP) or ``learnable``.
        alpha: APPNP's teleport probability, also where a learnable aggregator starts.
        M: propagation steps.
        estimator: ``compensated``, ``v1`` (no ∇C_k) or ``exact`` (a research oracle).
        lr: η of the clients.
        local_steps: I, local updates between two exchanges.
        batch_size: samples per update and client; none means all.
        momentum: the clients' momentum within a round.
        weight_decay: the clients' weight decay.
        proximal: FedProx's μ.
        train_participation: fraction (float) or number (int) of the training clients that train in a round.
        share_participation: fraction or number of all clients that share their representation in a round.
        weighting: ``uniform`` average over clients, or by ``samples``.
        server_optimizer: ``average``, ``momentum`` or ``adam`` (FedAdam).
        server_lr: the server's rate, for momentum and adam.
        server_momentum: its momentum, or β₁.
        server_beta2: its β₂.
        server_tau: FedAdam's τ.
        protocol: ``jacobian`` (the paper) or ``gram``: what is sent, not what is computed.
        path: ``auto``, ``dual``, ``primal`` or ``general``: how it is computed, not what comes out.
        seed: of the initial weights, batches, participation and noise.
        lr_scheduler: makes a torch scheduler of η, which steps once a round.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: list[int] = [64],  # noqa: B006  # read only
        activation: str = "relu",
        bias: bool = False,
        aggregator: Literal["appnp", "sgc", "identity", "learnable"] = "appnp",
        alpha: float = 0.1,
        M: int = 10,
        estimator: Estimator = "compensated",
        lr: float = 0.5,
        local_steps: int = 10,
        batch_size: int | None = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        proximal: float = 0.0,
        train_participation: float | int = 1.0,
        share_participation: float | int = 1.0,
        weighting: Literal["uniform", "samples"] = "uniform",
        server_optimizer: Literal["average", "momentum", "adam"] = "average",
        server_lr: float = 1.0,
        server_momentum: float = 0.9,
        server_beta2: float = 0.99,
        server_tau: float = 1e-3,
        protocol: ProtocolName = "jacobian",
        path: Path = "auto",
        seed: int = 0,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(lr, lr_scheduler)
        self.save_hyperparameters(ignore=["lr_scheduler", "num_clients"])  # the command line offers the latter to all
        require(seed >= 0, "seed", "be at least 0", seed)
        self.encoder = Encoder(num_features, num_classes, tuple(hidden), activation, bias)
        self.aggregator = _aggregator(aggregator, alpha, M)
        self.estimator: Estimator = estimator
        self.local = LocalTraining(lr, local_steps, batch_size, momentum, weight_decay, proximal)
        self.participation = Participation(train_participation, share_participation)
        self.server = Server(weighting, server_optimizer, server_lr, server_momentum, server_beta2, server_tau)
        self.protocol: ProtocolName = protocol
        self.path: Path = path
        self.seed = seed
        weights = self.encoder.initial_weights(generator(seed, Stream.WEIGHTS))
        if self.aggregator.learnable:
            weights["gamma"] = self.aggregator.gamma.float()
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight, requires_grad=False))
        self.account = PrivacyAccount()
        self._federation: Federation | None = None
        self._predictor: Predictor | None = None
        self._state: FederationState | None = None
        self._loaded_round = 0

    @property
    def federation(self) -> Federation:
        """The federation on the data at hand."""
        assert self._predictor is not None, "the federation exists once the data are set up"
        if self._federation is None:
            raise InputError(
                "graph must have a training sample of every class for rounds, "
                f"got none of class {self._predictor.graph.untrained_classes.tolist()}."
            )
        return self._federation

    @property
    def state(self) -> FederationState:
        """The federation's state after the last round."""
        assert self._state is not None, "the state exists once the fit has begun"
        return self._state

    @property
    def updates_per_round(self) -> int:
        """I."""
        return self.local.steps

    def protect(self, **options: Any) -> None:
        """Set fields of `Protection` and `Guarantee`; the next set-up builds the federation with them."""
        self.account.protect(**options)

    def prepare(self, graph: ClientGraph) -> None:
        """Build the federation, or only what predicts where a class has no training sample, as on new clients."""
        protection = self.account.in_force
        self._federation, self._predictor = None, Predictor(graph, self.encoder, self.aggregator, protection, self.seed)
        if len(graph.untrained_classes):
            return

        def federation(protection: Protection) -> Federation:
            return Federation(
                graph,
                self.encoder,
                self.aggregator,
                self.estimator,
                self.local,
                self.server,
                self.participation,
                self.protocol,
                self.path,
                self.seed,
                protection,
            )

        self._federation = self.account.open(federation, lambda: self.trainer.max_steps)

    def begin(self, rounds_done: int, saved: dict[str, Any]) -> None:
        """Start the federation at the parameters, resume it, or go on with the state at hand."""
        spent = saved.pop("privacy", None)
        if saved:
            weights = {name: weight.clone() for name, weight in self.current_weights().items()}
            self._state = FederationState(rounds_done, weights, **saved)
        elif rounds_done == 0 or self._state is None or self._state.round != rounds_done:
            self._state = self.federation.start(self.current_weights())
        self.account.begin(rounds_done, spent)

    @property
    def may_go_on(self) -> bool:
        """Whether the privacy budget, if there is one, allows another round."""
        return self.account.allows_another

    @property
    def privacy(self) -> PrivacyReport | None:
        """What the rounds so far have spent; ``None`` where nothing protects them."""
        return self.account.report()

    def progress(self) -> dict[str, Any]:
        """The state beside W̄: ages of the uploads, the W̄ they come from, the server's moments, the privacy spent."""
        state = self.state
        return self.account.ledger_state() | {
            "uploaded_in": state.uploaded_in,
            "enrolled_in": state.enrolled_in,
            "history": state.history,
            "moments": state.moments,
        }

    def run_round(self, lr: float) -> RoundResult:
        """One communication round, counted before it is made; the parameters become W̄."""
        spent = self.account.charge()
        self._state, report = self.federation.round(self.state, lr)
        self._set_parameters(self._state.weights)
        scalars = {
            "lr": lr,
            "clients_trained": report.trained,
            "clients_shared": report.shared,
            "clients_skipped": report.skipped,
            "oldest_upload": report.oldest_upload,
            "bytes_up": report.traffic.total_up,
            "bytes_down": report.traffic.total_down,
            "printed_bytes_up": report.printed_traffic.total_up,
            "printed_bytes_down": report.printed_traffic.total_down,
        }
        return RoundResult(report.metrics, scalars | spent)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: keep the protection too, so that nothing is ever evaluated or resumed without it."""
        super().on_save_checkpoint(checkpoint)
        if self.account.protects:
            checkpoint["protection"] = self.account.save(self.seed)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Lightning's hook: take up its protection."""
        super().on_load_checkpoint(checkpoint)
        self._loaded_round = checkpoint["global_step"]
        self.account.load(checkpoint.get("protection"), self.seed, self._saved_progress.get("privacy"))
        self._prepared_for = None

    @property
    def _at_hand(self) -> Federation | Predictor:
        return self._predictor if self._federation is None and self._predictor is not None else self.federation

    def predict_logits(self) -> Tensor:
        """Ã_kk h_{k,s} + C_k, every client sharing at the parameters, as protected as in the round they come from."""
        return self._at_hand.logits_of(self.current_weights(), self._round_of_parameters())

    def evaluate(self) -> dict[str, Metrics]:
        """Metrics on each split, every client sharing at the parameters."""
        return self._at_hand.metrics_of(self.current_weights(), self._round_of_parameters())

    def _round_of_parameters(self) -> int:
        """The round that left the parameters: the best, the last, or that of the checkpoint they were loaded from.

        Protected uploads exist for the weights of rounds alone: others would be shared under noise already used.
        """
        if self._holds(self.best.weights):
            return self.best.round
        if self._state is None:
            return self._loaded_round
        require(
            not self.account.protects or self._holds(self._state.weights),
            "weights",
            "be those of a round where uploads are protected",
            "weights that a callback has put in",
        )
        return self._state.round

    def _holds(self, weights: Weights) -> bool:
        now = self.current_weights()
        return bool(weights) and all(torch.equal(now[name], weight) for name, weight in weights.items())

    def last_weights(self) -> Weights:
        """W̄ after the last round."""
        return self.state.weights

    def _set_parameters(self, weights: Weights) -> None:
        """Copy W̄ into the parameters, which callbacks may overwrite; they take its layout, so that copying is cheap."""
        for name, weight in weights.items():
            parameter = self.get_parameter(name)
            if parameter.stride() == weight.stride():
                parameter.data.copy_(weight)
            else:
                parameter.data = weight.clone()


def _aggregator(name: str, alpha: float, M: int) -> Aggregator:
    require_choice("aggregator", name, ("appnp", "sgc", "identity", "learnable"))
    if name == "identity":
        return Identity()
    if name == "sgc":
        return SGC(M)
    return APPNP(alpha, M) if name == "appnp" else LearnablePolynomial(alpha, M)
