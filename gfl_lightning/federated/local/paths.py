"""Which way to carry out the local steps: what each path can do, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import InputError, require, require_choice
from gfl_lightning.engine.training_set import TrainingSet
from gfl_lightning.federated.exchange.neighbourhood import Neighbourhood
from gfl_lightning.federated.exchange.sample_table import SampleTable
from gfl_lightning.federated.local.dual import DualPath
from gfl_lightning.federated.local.general import GeneralPath
from gfl_lightning.federated.local.linear import LinearPath
from gfl_lightning.federated.local.linear_span import LinearSpanPath
from gfl_lightning.federated.local.options import PATHS, Estimator, LocalTraining, Path
from gfl_lightning.federated.local.primal import PrimalPath
from gfl_lightning.federated.local.problem import LocalPath
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.two_layer_relu import TwoLayerReLU
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.protection import Protection

MEMORY_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Sizes:
    """Numbers that decide the cost: K training clients with up to n samples, N clients, Q shared samples."""

    K: int
    n: int
    N: int
    Q: int

    @classmethod
    def of(cls, training: TrainingSet, table: SampleTable) -> Sizes:
        """Those of a federation."""
        K, n = training.sample.shape
        return cls(K, n, table.graph.num_clients, len(table.shared))

    def dual_cost(self, structure: TwoLayerReLU, local: LocalTraining, compensated: bool) -> tuple[float, float]:
        """Multiplications per round and entries kept, on the dual path."""
        m = structure.width
        rows = self.K * self.n
        steps = local.steps * rows * m * (self.n + 3 * structure.num_classes)
        average = self.Q * m * structure.num_features
        pull = rows * self.Q * m if compensated and local.steps > 1 else 0
        return average + pull + steps, rows * (self.Q * compensated + self.n)

    def primal_cost(self, structure: TwoLayerReLU, local: LocalTraining, compensated: bool) -> tuple[float, float]:
        """Multiplications per round and entries kept, on the primal path."""
        m, d = structure.width, structure.num_features
        batch = min(self.n, local.batch_size or self.n)
        steps = local.steps * self.K * m * d * (2 * batch + 3)
        pull = self.Q * m * d + self.K * self.N * m * d if compensated else 0
        return pull + steps, (self.N + 3 * self.K) * m * d + self.Q * d


def obstacle_to_structure(
    encoder: SizedEncoder, aggregator: Aggregator, estimator: Estimator, local: LocalTraining
) -> str | None:
    """Why the structured paths cannot carry a configuration, or ``None`` where they can."""
    if encoder.structure is None:
        return "the encoder is not two-layer ReLU without bias"
    if aggregator.learnable:
        return "the aggregator is learnable"
    if estimator == "exact":
        return "the estimator is exact"
    return None if local.is_plain_sgd else "clients use more than plain SGD"


def obstacle_to_linear(
    encoder: SizedEncoder, aggregator: Aggregator, estimator: Estimator, protection: Protection
) -> str | None:
    """Why the linear path cannot carry a configuration, or ``None`` where it can."""
    if encoder.encoder.linear_weight is None:
        return "the encoder is not a linear map without bias"
    if aggregator.learnable:
        return "the aggregator is learnable"
    if estimator == "exact":
        return "the estimator is exact"
    return None if protection.jacobian.is_inert and protection.steps.is_inert else "Jacobians or steps are protected"


def choose_path(
    path: Path,
    sizes: Sizes,
    encoder: SizedEncoder,
    aggregator: Aggregator,
    estimator: Estimator,
    local: LocalTraining,
    protection: Protection = Protection(),  # noqa: B008  # frozen
) -> Path:
    """The path to take: the one asked for if it carries the configuration, else the cheapest that does."""
    require_choice("path", path, PATHS)
    dp_sgd, unfit = not protection.steps.is_inert, obstacle_to_linear(encoder, aggregator, estimator, protection)
    if path == "linear" and unfit:
        raise InputError(f"path must be another where {unfit}, got 'linear'.")
    if path == "linear" or (path == "auto" and not unfit):
        return "linear"
    obstacle = obstacle_to_structure(encoder, aggregator, estimator, local)
    if path in {"dual", "primal"}:
        if obstacle:
            raise InputError(f"path must be general where {obstacle}, got {path!r}.")
        require(not (dp_sgd and path == "dual"), "path", "be primal or general where local steps are DP-SGD's", path)
        return path
    structure = encoder.structure
    if path == "general" or obstacle or structure is None:
        return "general"
    if dp_sgd:
        return "primal"
    sharing = estimator == "compensated" and not aggregator.isolates
    costs = {"dual": sizes.dual_cost(structure, local, sharing), "primal": sizes.primal_cost(structure, local, sharing)}
    itemsize = 8
    fitting = {name: cost for name, (cost, entries) in costs.items() if entries * itemsize <= MEMORY_LIMIT}
    if not fitting:
        return "dual" if costs["dual"][1] <= costs["primal"][1] else "primal"
    return "dual" if fitting.get("dual", float("inf")) <= fitting.get("primal", float("inf")) else "primal"


def local_path(
    path: Path,
    table: SampleTable,
    model: Model,
    estimator: Estimator,
    local: LocalTraining,
    training: TrainingSet,
    neighbourhood: Neighbourhood,
) -> LocalPath:
    """The chosen path, with what is known before training."""
    compensated = estimator == "compensated" and not model.aggregator.isolates
    structure = model.encoder.structure
    linear = model.encoder.encoder.linear_weight
    if path == "linear" and linear is not None:
        n = training.sample.shape[1]
        few = n * n <= min(n, local.batch_size or n) * model.encoder.num_features
        kind = LinearSpanPath if few else LinearPath
        return kind.prepare(table, linear, local, neighbourhood, compensated)
    if path == "general" or structure is None:
        taken: Estimator = "v1" if estimator == "compensated" and not compensated else estimator
        A, learnable = neighbourhood.A, model.aggregator.learnable
        return GeneralPath.prepare(table, model.encoder, taken, local, A, training.clients, learnable)
    if path == "dual":
        return DualPath.prepare(table, structure, training, neighbourhood, compensated)
    return PrimalPath(table, structure, compensated)
