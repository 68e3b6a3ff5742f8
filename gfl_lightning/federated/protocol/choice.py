"""Which protocol carries ∇ĥ and the update: the paper's, or the factors of the same Jacobians."""

from __future__ import annotations

from typing import Literal

from gfl_lightning.checks import require, require_choice
from gfl_lightning.federated.local.options import Estimator, LocalTraining
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import SizedEncoder

ProtocolName = Literal["jacobian", "gram"]
PROTOCOLS = ("jacobian", "gram")


def require_protocol(
    protocol: ProtocolName, encoder: SizedEncoder, aggregator: Aggregator, estimator: Estimator, local: LocalTraining
) -> None:
    """Refuse a protocol that cannot carry the configuration."""
    require_choice("protocol", protocol, PROTOCOLS)
    if protocol == "gram":
        rule = "be jacobian unless the encoder is two-layer ReLU or linear, without bias"
        require(encoder.has_factors, "protocol", rule, protocol)
        require(not aggregator.learnable, "protocol", "be jacobian where the aggregator is learnable", protocol)
        require(estimator == "compensated", "protocol", f"be jacobian where the estimator is {estimator}", protocol)
        plain = local.is_plain_sgd or encoder.structure is None  # a linear encoder's ∇C_k comes whole
        require(plain, "protocol", "be jacobian where clients use more than plain SGD", protocol)
