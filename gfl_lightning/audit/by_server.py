"""The server's attacks, on clients of one sample and of several, and on those that train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gfl_lightning.attacks.attack import Attack
from gfl_lightning.attacks.server.class_shares import ClassShares
from gfl_lightning.attacks.server.decoded_sample import DecodedSample
from gfl_lightning.attacks.server.factorised_samples import FactorisedSamples
from gfl_lightning.attacks.server.flipped_units import FlippedUnits
from gfl_lightning.attacks.server.matched_gradient import MatchedGradient
from gfl_lightning.attacks.server.rank_one import RankOne
from gfl_lightning.attacks.server.update_label import UpdateLabel
from gfl_lightning.attacks.server.update_sample import UpdateSample
from gfl_lightning.attacks.views import View
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.membership import membership
from gfl_lightning.audit.sights import Sight
from gfl_lightning.audit.stage import PUBLIC, Stage
from gfl_lightning.audit.trials import Trial, run

SEARCHED = 4
LABELS = 4
"""Of each target of other attacks, how many labels are guessed, which costs little and is right or wrong."""


def by_server(stage: Stage, sight: Sight) -> list[Finding]:
    """What the server learns, by what it sees."""
    cast, victims = stage.cast, stage.scale.victims
    most = -(-victims // 2) if stage.costly else victims
    shared = {j: len(cast.shared(j)) for j in cast.order}
    one = [j for j in cast.order if shared[j] == 1][:most]
    several = [j for j in cast.order if shared[j] > 1][:most]
    trains = cast.training_victims(len(cast.order))
    alone = [k for k in trains if len(cast.training(k)) == 1][:victims]
    uniform = [k for k in trains if len(cast.graph.y[cast.training(k)].unique()) == 1]
    mixed = [k for k in trains if len(cast.training(k)) > 1][:victims]
    few = stage.scale.noisy_rounds if stage.costly else 10**6

    def view(j: int) -> View:
        return sight(stage.seeing.server(j)).first(few)

    def class_shares(client: int) -> Tensor:
        y = cast.graph.y[cast.training(client)]
        return torch.bincount(y, minlength=cast.graph.num_classes).double() / len(y)

    plans: list[tuple[Attack[Any], list[int], Callable[[int], Tensor]]] = [
        (RankOne(), one, lambda j: cast.shared(j)[0]),
        (MatchedGradient(), one[:SEARCHED], lambda j: cast.shared(j)[0]),
        (FlippedUnits(), several, cast.shared),
        (FactorisedSamples(), several[:SEARCHED], cast.shared),
        (DecodedSample(), [j for j in cast.order if shared[j]][:victims], lambda j: cast.shared(j).mean(0)),
        (UpdateSample(), alone, lambda k: cast.graph.x[cast.training(k)[0]]),
        (UpdateLabel(), uniform[: LABELS * victims], lambda k: cast.graph.y[cast.training(k)[0]]),
        (ClassShares(), mixed, class_shares),
    ]
    found: list[Finding] = []
    for attack, targets, truth in plans:
        found += run(attack, PUBLIC, (Trial(view(j), stage.knowledge(j), truth(j)) for j in targets))
    return found + membership(stage, view)
