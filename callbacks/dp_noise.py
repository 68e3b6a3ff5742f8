"""Differential privacy of what clients upload: the paper's noise, and bounds that turn noise into a guarantee."""

from __future__ import annotations

from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism


class DPNoise(ProtectingCallback):
    """A mechanism on ĥ_j, ∇ĥ_j and W_k − W̄ each: a bound on their norm, then noise on every entry, fresh each round.

    The paper's "hn" is noise on ``hidden`` alone, "hn_gn" on ``hidden`` and ``jacobian``: without bounds nothing is
    guaranteed, and the summary says so. A mechanism that does nothing, the default, leaves what the model states.

    >>> DPNoise(hidden=Gaussian(std=0.1, clip=1.0)).stated
    {'hidden': Gaussian(std=0.1, clip=1.0)}

    Args:
        hidden: on the representations ĥ_j.
        jacobian: on their Jacobians ∇ĥ_j; V1 shares none.
        update: on the model updates W_k − W̄ (DP-FedAvg).
        validation: on the clients' validation losses, bounded to [0, C]: their noisy mean, ``private_val_loss``, may
            stop a fit, lower its rate and choose the round that is kept, under a guarantee.
    """

    def __init__(
        self,
        hidden: Mechanism = Gaussian(),  # noqa: B008  # mechanisms are frozen
        jacobian: Mechanism = Gaussian(),  # noqa: B008
        update: Mechanism = Gaussian(),  # noqa: B008
        validation: Mechanism = Gaussian(),  # noqa: B008
    ) -> None:
        named = {"hidden": hidden, "jacobian": jacobian, "update": update, "validation": validation}
        super().__init__({name: mechanism for name, mechanism in named.items() if not mechanism.is_inert})
