"""Which way to carry out the local steps: what each path can do, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from gfl_lightning.checks import InputError, require
from gfl_lightning.federated.options import Estimator, LocalTraining, Path, require_choice
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import SizedEncoder

MEMORY_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class Sizes:
    """Numbers that decide the cost: K training clients with up to n samples, N clients, Q shared samples."""

    K: int
    n: int
    N: int
    Q: int

    def dual_cost(self, encoder: Encoder, local: LocalTraining, compensated: bool) -> tuple[float, float]:
        """Multiplications per round and entries kept, on the dual path."""
        (m,) = encoder.hidden
        rows = self.K * self.n
        steps = local.steps * rows * m * (self.n + 3 * encoder.num_classes)
        average = self.Q * m * encoder.num_features
        pull = rows * self.Q * m if compensated and local.steps > 1 else 0
        return average + pull + steps, rows * (self.Q * compensated + self.n)

    def primal_cost(self, encoder: Encoder, local: LocalTraining, compensated: bool) -> tuple[float, float]:
        """Multiplications per round and entries kept, on the primal path."""
        (m,), d = encoder.hidden, encoder.num_features
        batch = min(self.n, local.batch_size or self.n)
        steps = local.steps * self.K * m * d * (2 * batch + 3)
        pull = self.Q * m * d + self.K * self.N * m * d if compensated else 0
        return pull + steps, (self.N + 3 * self.K) * m * d + self.Q * d


def obstacle_to_structure(
    encoder: Encoder, aggregator: Aggregator, estimator: Estimator, local: LocalTraining
) -> str | None:
    """Why the structured paths cannot carry a configuration, or ``None`` where they can."""
    if not encoder.is_papers:
        return "the encoder is not two-layer ReLU without bias"
    if aggregator.learnable:
        return "the aggregator is learnable"
    if estimator == "exact":
        return "the estimator is exact"
    return None if local.is_plain_sgd else "clients use more than plain SGD"


def choose_path(
    path: Path,
    sizes: Sizes,
    encoder: Encoder,
    aggregator: Aggregator,
    estimator: Estimator,
    local: LocalTraining,
    dp_sgd: bool = False,
) -> Path:
    """The path to take: the one asked for if it carries the configuration, else the cheapest that does."""
    require_choice("path", path, ("auto", "dual", "primal", "general"))
    obstacle = obstacle_to_structure(encoder, aggregator, estimator, local)
    if path in {"dual", "primal"}:
        if obstacle:
            raise InputError(f"path must be general where {obstacle}, got {path!r}.")
        require(not (dp_sgd and path == "dual"), "path", "be primal or general where local steps are DP-SGD's", path)
        return path
    if path == "general" or obstacle:
        return "general"
    if dp_sgd:
        return "primal"
    sharing = estimator == "compensated" and bool(aggregator.gamma[1:].any())
    costs = {"dual": sizes.dual_cost(encoder, local, sharing), "primal": sizes.primal_cost(encoder, local, sharing)}
    itemsize = 8
    fitting = {name: cost for name, (cost, entries) in costs.items() if entries * itemsize <= MEMORY_LIMIT}
    if not fitting:
        return "dual" if costs["dual"][1] <= costs["primal"][1] else "primal"
    return "dual" if fitting.get("dual", float("inf")) <= fitting.get("primal", float("inf")) else "primal"


def require_protocol(
    protocol: str, encoder: Encoder, aggregator: Aggregator, estimator: Estimator, local: LocalTraining
) -> None:
    """Refuse a protocol that cannot carry the configuration."""
    require_choice("protocol", protocol, ("jacobian", "gram"))
    if protocol == "gram":
        require(
            encoder.is_papers, "protocol", "be jacobian unless the encoder is two-layer ReLU without bias", protocol
        )
        require(not aggregator.learnable, "protocol", "be jacobian where the aggregator is learnable", protocol)
        require(estimator == "compensated", "protocol", f"be jacobian where the estimator is {estimator}", protocol)
        require(local.is_plain_sgd, "protocol", "be jacobian where clients use more than plain SGD", protocol)
