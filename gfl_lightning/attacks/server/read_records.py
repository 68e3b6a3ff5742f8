"""What the server reads of a client's records as they were sent, whatever hid them before."""

from __future__ import annotations

import torch
from torch import Tensor

from gfl_lightning.attacks.knowledge import Knowledge
from gfl_lightning.attacks.server.flipped_units import FlippedUnits
from gfl_lightning.attacks.server.rank_one import RankOne
from gfl_lightning.attacks.views import View


def records_read(view: View, knowledge: Knowledge) -> Tensor:
    """Records ``[found, d]`` of one sample or of several, off the Jacobians; none where there are none.

    A client that replaced its records by randomised ones, or turned them, is read as well as any other.
    """
    if knowledge.samples == 1:
        record, variance = RankOne().reading(view, knowledge)
        return record[None] if variance < torch.inf else knowledge.public_x[:0]
    attack = FlippedUnits()
    return attack.guess(attack.looks_at(view), knowledge) if attack.applies(view) else knowledge.public_x[:0]
