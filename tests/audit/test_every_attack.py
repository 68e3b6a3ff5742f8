"""Every attack, through the audit: at chance on messages of other data and where ε is 0.01, and none is missing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import gfl_lightning.attacks
from gfl_lightning.attacks.attack import Attack
from gfl_lightning.attacks.fellow.distant_edges import DistantEdges
from gfl_lightning.audit.audit import Audit, audit
from gfl_lightning.audit.by_fellows import trials_of
from gfl_lightning.audit.cast import Cast, Scale
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.of_model import audited, builder
from gfl_lightning.audit.page import privacy
from gfl_lightning.audit.recording import record
from gfl_lightning.audit.seeing import Seeing
from gfl_lightning.audit.stage import NAMED, Stage
from gfl_lightning.audit.subject import Subject
from gfl_lightning.audit.trials import Tally
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection

SCALE = Scale(victims=16, fellows=8, shadows=4, noisy_rounds=4)
ROUNDS = 10
EPSILON = 0.01


class Opaque(MLP):
    """An encoder that does not say which weight meets its features, which only a search can attack."""

    @property
    def feature_weight(self) -> None:  # type: ignore[override]
        return None

    def structure(self, num_features: int, num_classes: int) -> None:
        return None


GRAPHS = {
    "one sample each": lambda: DNC(num_clients=80, num_features=30, degree=6.0).graph,
    "several": lambda: SC(num_clients=24, num_features=20, train_samples=4, val_samples=2, test_samples=4).graph,
    "opaque": lambda: DNC(num_clients=120, num_features=12, degree=6.0).graph,
}


def every_attack() -> list[str]:
    """The names of all attacks in the package."""
    folder = Path(gfl_lightning.attacks.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        import_module(".".join(("gfl_lightning.attacks", *(part for part in parts if part != "__init__"))))
    found, waiting = [], [Attack]
    while waiting:
        some: type[Any] = waiting.pop()
        waiting += some.__subclasses__()
        if some.__module__.startswith("gfl_lightning.attacks.") and not some.__abstractmethods__:
            found.append(some.__name__)
    return sorted(found)


ATTACKS = every_attack()


def model_on(graph: ClientGraph, name: str, **options: Any) -> GFL:
    encoder = Opaque((16,)) if name == "opaque" else MLP((32,))
    local = LocalTraining(lr=0.3, steps=2)
    model = GFL(graph.num_features, graph.num_classes, encoder, local=local, noise_seed=0, **options)
    model.engine_on(graph, ROUNDS)
    return model


class Elsewhere(Subject):
    """A subject whose truth has nothing to do with what was trained on."""

    @property
    def truth(self) -> ClientGraph:  # type: ignore[override]
        generator = torch.Generator().manual_seed(1)
        y = torch.randint(self.graph.num_classes, self.graph.y.shape, generator=generator)
        return replace(self.graph, x=torch.randn(self.graph.x.shape, generator=generator), y=y)


@cache
def audits(kind: str) -> dict[str, Audit]:
    found = {}
    for name, make in GRAPHS.items():
        graph = make()
        scale = Scale(victims=12, fellows=1, shadows=0) if name == "opaque" else SCALE
        if kind == "epsilon":
            bound = Gaussian(clip=1.0)
            guarantee = Guarantee(max_epsilon=EPSILON, delta=1e-5, calibrate=True)
            model = model_on(graph, name, protection=Protection(bound, bound, bound), guarantee=guarantee)
            found[name] = audited(model, graph, ROUNDS, scale)
        else:
            model = model_on(graph, name)
            found[name] = audit(Elsewhere(graph, builder(model), ROUNDS), scale)
    return found


def findings(kind: str, attack: str) -> list[Finding]:
    """Of an attack, with targets enough; the opaque encoder is there for the search alone."""
    return [
        one
        for name, found in audits(kind).items()
        for one in found.findings
        if one.attack == attack and (name == "opaque") == (attack == "MatchedGradient")
    ]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", ["other data", "epsilon"])
def test_every_attack_is_at_chance(kind: str, attack: str) -> None:
    found = findings(kind, attack)
    assert found, "no audit here runs this attack: give GRAPHS one that does"
    if (kind, attack) == ("other data", "DistantEdges"):
        return  # its attackers ask about the same few clients and share their luck: see below
    for one in found:
        two_answers = any(word in one.measure for word in ("right", "ROC"))  # of two classes, worlds or strangers
        chance = max(one.blind, 0.5) if two_answers else one.blind
        assert not one.beats_guessing or one.success - chance < 0.15, one
        assert not one.empirical_epsilon > EPSILON, one


def test_distant_edges_are_at_chance_over_many_draws_of_other_data() -> None:
    scores = []
    for name in ("one sample each", "several"):
        graph = GRAPHS[name]()
        build = builder(model_on(graph, name))
        subject = Subject(graph, build, ROUNDS)
        seeing = Seeing(record(build(graph, 0), ROUNDS), 0)
        for seed in range(1, 9):
            generator = torch.Generator().manual_seed(seed)
            truth = replace(graph, x=torch.randn(graph.x.shape, generator=generator))
            stage = Stage(subject, Cast.of(truth, 0), seeing, SCALE)
            tally = Tally(DistantEdges(), NAMED)
            for k in stage.cast.fellows(24):
                for trial in trials_of(stage, tally, k, stage.seeing.fellow(k)):
                    tally.add(trial)
            scores += [one.success for one in tally.finding()]
    assert len(scores) == 16
    assert abs(sum(scores) / 16 - 0.5) < 0.12


def test_the_nominal_epsilon_of_seeded_noise_stands_beside_the_claim_of_none() -> None:
    found = audits("epsilon")["one sample each"]
    assert found.claimed_epsilon == float("inf")
    assert found.nominal_epsilon == pytest.approx(EPSILON, rel=1e-3)
    nominal = f"nominal ε = {found.nominal_epsilon:.4g}"
    assert f"no ε is claimed ({nominal}: noise from a seed hides nothing from who knows it)" in privacy(found)
