"""Differential privacy of a client's whole record, paid once: it is randomised before anything of it is shared."""

from __future__ import annotations

from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.protection import Unit
from gfl_lightning.privacy.randomise.mechanism import FeatureMechanism, LabelMechanism
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse


class RandomiseOnce(ProtectingCallback):
    """Every client replaces its record by a randomised one; all that follows is post-processing and costs no more.

    Made for a linear encoder and deep propagation (`configs/private/randomise_cora.yaml`), but any model, protocol and
    number of rounds keeps the same ε. Validation labels are randomised too, so that the choice of the best round is
    part of the promise.

    >>> RandomiseOnce(epsilon=4.0).stated["records"].epsilon
    4.0

    Args:
        epsilon: ε, of each unit, against everybody.
        features: the mechanism of features.
        labels: the mechanism of labels.
        label_share: share of ε that goes into the label, where there is one in use; a record without one spends all
            of ε on its features.
        unit: whose data are protected: those of a ``client``, or each ``sample``.
        pooled: whether the samples of a client are replaced by one draw of their mean; for the unit ``client``.
        share_labels: scale of the randomised labels as shared features; 0 means that none are.
    """

    def __init__(
        self,
        epsilon: float = 8.0,
        features: FeatureMechanism = PrivUnit(dimensions=128),  # noqa: B008  # mechanisms are frozen
        labels: LabelMechanism = RandomisedResponse(),  # noqa: B008
        label_share: float = 1.0,
        unit: Unit = "client",
        pooled: bool = False,
        share_labels: float = 2.0,
    ) -> None:
        super().__init__(
            {"records": RandomisedOnce(epsilon, features, labels, label_share, unit, pooled, share_labels)}
        )
