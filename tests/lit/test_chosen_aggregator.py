"""An aggregator chosen by validation: the choice against trials by hand, and what keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lit_types import Given

from callbacks import DPNoise
from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.chosen_appnp import ChosenAPPNP
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.randomise.once import RandomisedOnce

DATA, LOCAL = DNC(num_clients=60, num_features=10), LocalTraining(0.5, 3)
OFFERED = ChosenAPPNP(alphas=(0.1, 0.9), depths=(1, 4, 30), rounds=3)
RECORDS = RandomisedOnce(epsilon=3.0)
QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "accelerator": "cpu",
}


def model(aggregator: Aggregator = OFFERED, **options: Any) -> GFL:
    stated: dict[str, Any] = {"noise_seed": 0, "records": RECORDS} | options
    return GFL(10, 2, encoder=Linear(), aggregator=aggregator, local=LOCAL, **stated)


def fit(module: GFL, rounds: int = 6, data: Any = DATA, callbacks: Any = (), **options: Any) -> FederatedTrainer:
    trainer = FederatedTrainer(max_steps=rounds, callbacks=list(callbacks), **QUIET)
    trainer.fit(module, data, **options)
    return trainer


def test_the_aggregator_with_the_lowest_validation_loss_of_its_trial_is_taken() -> None:
    module = model()
    fit(module)
    losses = {}
    for candidate in OFFERED.candidates:
        engine = Federation(module.federation.graph, Linear(), candidate, local=LOCAL)
        state, found = engine.start(), []
        for _ in range(3):
            state, report = engine.round(state)
            found.append(report.metrics["val"].loss)
        losses[candidate] = min(found)
    assert len(set(losses.values())) == 6
    best = min(losses, key=losses.__getitem__)
    assert module.model.aggregator == best
    assert module.chosen_parts["chosen"]["init_args"] == {"alpha": best.alpha, "M": best.M}


def test_training_with_it_is_training_with_that_one_from_the_start() -> None:
    chosen = model()
    fit(chosen)
    plain = model(chosen.model.aggregator)
    fit(plain)
    assert torch.equal(chosen.W, plain.W)  # type: ignore[arg-type]
    assert plain.chosen_parts == {}
    assert chosen.evaluate() == plain.evaluate()


def test_trials_are_no_longer_than_the_fit_and_true_test_labels_do_not_matter() -> None:
    long, short = model(replace(OFFERED, rounds=50)), model(replace(OFFERED, rounds=2))
    other = replace(DATA.graph, y=torch.where(DATA.graph.mask(Split.TEST), 1 - DATA.graph.y, DATA.graph.y))
    fit(long, rounds=2)
    fit(short, rounds=2, data=Given(other))
    assert long.model.aggregator == short.model.aggregator


def test_a_checkpoint_brings_the_choice_along(tmp_path: Path) -> None:
    whole, first = model(), model()
    fit(whole)
    trainer = fit(first, rounds=3)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = GFL.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.model.aggregator == first.model.aggregator
    assert FederatedTrainer(**QUIET).test(loaded, DATA, verbose=False) == trainer.test(first, DATA, verbose=False)
    resumed = model()
    fit(resumed, ckpt_path=tmp_path / "last.ckpt")
    assert torch.equal(resumed.W, whole.W)  # type: ignore[arg-type]
    assert resumed.model.aggregator == whole.model.aggregator


def test_without_a_way_to_choose_it_is_refused() -> None:
    with pytest.raises(InputError, match="aggregator must be a fixed one where uploads are protected"):
        fit(model(records=AsTheyAre()), callbacks=[DPNoise(hidden=Gaussian(1.0, 1.0))])


def test_without_validation_samples_it_is_refused() -> None:
    graph = DATA.graph
    nobody = replace(graph, split=torch.where(graph.mask(Split.VAL), int(Split.NONE), graph.split))
    with pytest.raises(InputError, match="aggregator must be a fixed one where nobody has validation samples"):
        fit(model(), data=Given(nobody))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alphas": ()}, "alphas must offer at least one value"),
        ({"depths": ()}, "depths must offer at least one value"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"alphas": (0.0,)}, "alpha must lie in .0, 1., got 0.0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ChosenAPPNP(**options)


def test_until_then_it_is_the_first_that_is_offered() -> None:
    assert torch.equal(OFFERED.gamma, APPNP(0.1, 1).gamma)
    assert len(OFFERED.candidates) == 6
