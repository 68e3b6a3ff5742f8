"""Records randomised once, as a Lightning user and the command line meet them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lit_types import Given

from callbacks import DPNoise, PrivacyBudget, RandomiseOnce
from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.lit import cli
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.encoders.encoder import Encoder
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.once import randomised, what_is_released
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit

DATA = DNC(num_clients=60, num_features=10)
QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "accelerator": "cpu",
}


def model(encoder: Encoder = Linear(), **options: Any) -> GFL:  # noqa: B008  # frozen
    local = LocalTraining(0.5, 3)
    return GFL(10, 2, encoder=encoder, aggregator=APPNP(0.1, 5), local=local, **{"noise_seed": 0} | options)


def fit(module: GFL, *callbacks: Any, rounds: int = 4, data: Any = DATA, **options: Any) -> FederatedTrainer:
    trainer = FederatedTrainer(max_steps=rounds, callbacks=list(callbacks), **QUIET | options)
    trainer.fit(module, data)
    return trainer


def test_everything_that_trains_sees_randomised_records_alone() -> None:
    module = model()
    fit(module, RandomiseOnce(epsilon=2.0))
    seen, graph = module.federation.graph, DATA.graph
    used = graph.mask(Split.TRAIN) | graph.mask(Split.VAL)
    assert seen.num_features == 12
    assert not (seen.y[: graph.num_samples] == graph.y)[used].all()
    assert seen.x[: graph.num_samples, :10][used].eq(0).all()
    cosine = torch.nn.functional.cosine_similarity(seen.x[: graph.num_samples, :10][~used], graph.x[~used])
    assert cosine.mean() > 0.05
    assert cosine.max() < 0.999


def test_the_report_states_a_pure_epsilon_that_rounds_do_not_change() -> None:
    few, many = model(noise_seed=None), model(noise_seed=None)
    fit(few, RandomiseOnce(epsilon=2.0), rounds=1)
    fit(many, RandomiseOnce(epsilon=2.0), rounds=20)
    assert few.privacy == many.privacy
    report = many.privacy
    assert report is not None
    assert (report.epsilon, report.epsilon_fellow, report.delta) == (2.0, 2.0, 0.0)
    assert report.sentence() == "ε = 2 (pure, δ = 0) against everybody, paid once for any number of rounds"
    assert "one client's whole data set" in report.scope()
    assert "true labels enter the experimenter's test metric, and nothing else" in report.scope()
    assert many.round_metrics["epsilon"] == 2.0
    sample = model(noise_seed=None)
    fit(sample, RandomiseOnce(epsilon=3.0, unit="sample", features=GaussianDirection(1e-6)), data=DATA)
    assert sample.privacy is not None
    assert sample.privacy.sentence().startswith("ε = 3 (δ = 1e-06) against everybody")
    assert "one sample of a client" in sample.privacy.scope()


def test_the_best_round_does_not_depend_on_true_validation_labels() -> None:
    """With other true labels where the answers are the same, training, choice and model are the same."""
    module = model()
    trainer = fit(module, RandomiseOnce(epsilon=0.5), rounds=10)
    seen = module.federation.graph
    engine = Federation(seen, Linear(), APPNP(0.1, 5), local=LocalTraining(0.5, 3))
    state, best = engine.start(), None
    losses = []
    for _ in range(10):
        state, report = engine.round(state)
        losses.append(report.metrics["val"].loss)
    best = int(np.argmin(losses)) + 1
    assert module.best.round == best
    torch.testing.assert_close(module.state.weights["W"], state.weights["W"])
    assert trainer.global_step == 10


@pytest.mark.parametrize("options", [{}, {"estimator": "v1"}, {"protocol": "gram"}, {"path": "general"}], ids=str)
def test_any_path_estimator_and_protocol_goes_with_it(options: dict[str, Any]) -> None:
    module = model(MLP((8,)), noise_seed=None, **options)
    fit(module, RandomiseOnce(epsilon=4.0))
    assert module.privacy is not None
    assert module.privacy.epsilon == 4.0


@pytest.mark.parametrize("name", ["dnc", "snc", "sc"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimator": "v1"},
        {"path": "general"},
        {"protocol": "gram"},
        {"encoder": MLP((8,))},
        {"encoder": MLP((8,)), "protocol": "gram"},
        {"encoder": MLP((8,)), "path": "primal"},
        {"participation": Participation(train=0.5)},
    ],
    ids=str,
)
def test_all_that_follows_is_the_plain_federation_on_the_randomised_graph(name: str, options: dict[str, Any]) -> None:
    """The graph made by the plain function with the module's own draws, and the default path and protocol on it."""
    data = {
        "dnc": DATA,
        "snc": SNC(num_clients=40, num_features=10, samples_per_client=3),
        "sc": SC(num_clients=20, num_features=10, train_samples=4, val_samples=2, test_samples=3),
    }[name]
    callback = RandomiseOnce(epsilon=4.0, label_share=0.5, unit="sample" if name == "sc" else "client")
    module = model(**options)
    fit(module, callback, data=data)
    records = callback.stated["records"]
    draws = NoiseKey.of_seed(0).source("records", hides=digest(repr(records), *what_is_released(data.graph)))
    graph = records.heard(randomised(data.graph, records, draws.generator()), APPNP(0.1, 5).gamma)
    parts = {key: value for key, value in options.items() if key in ("estimator", "participation")}
    encoder = options.get("encoder", Linear())
    plain = Federation(graph, encoder, APPNP(0.1, 5), local=LocalTraining(0.5, 3), path="general", seed=0, **parts)
    state = plain.start()
    for _ in range(4):
        state, _ = plain.round(state)
    for weight, found in state.weights.items():
        torch.testing.assert_close(module.state.weights[weight], found, rtol=1e-4, atol=1e-5)


def test_clients_with_many_samples_go_with_it() -> None:
    data = SC(num_clients=20, num_features=10, train_samples=6)
    module = model()
    fit(module, RandomiseOnce(epsilon=4.0, unit="sample", label_share=0.5), data=data)
    assert module.predict_logits().shape == (data.graph.num_samples, 2)


def test_the_model_may_state_its_records_itself() -> None:
    by_callback, by_model = model(), model(records=RandomiseOnce(epsilon=2.0).stated["records"])
    fit(by_callback, RandomiseOnce(epsilon=2.0))
    fit(by_model)
    assert torch.equal(by_callback.W, by_model.W)  # type: ignore[arg-type]
    assert by_callback.hparams["records"] == by_model.hparams["records"]


def test_a_checkpoint_brings_its_records_along(tmp_path: Path) -> None:
    whole, first = model(), model()
    fit(whole, RandomiseOnce(epsilon=2.0), rounds=6)
    trainer = fit(first, RandomiseOnce(epsilon=2.0), rounds=3)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed = model()
    again = FederatedTrainer(max_steps=6, callbacks=[RandomiseOnce(epsilon=2.0)], **QUIET)
    again.fit(resumed, DATA, ckpt_path=tmp_path / "last.ckpt")
    assert torch.equal(resumed.W, whole.W)  # type: ignore[arg-type]
    loaded = GFL.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.records == first.records
    tested = FederatedTrainer(**QUIET).test(loaded, DATA, verbose=False)
    assert tested == trainer.test(first, DATA, verbose=False)
    other = model()
    with pytest.raises(InputError, match=r"model.records.epsilon must be left out or be 2.0, as in the checkpoint"):
        FederatedTrainer(max_steps=6, callbacks=[RandomiseOnce(epsilon=4.0)], **QUIET).fit(
            other, DATA, ckpt_path=tmp_path / "last.ckpt"
        )


def test_records_cannot_be_randomised_after_rounds_were_made() -> None:
    module = model()
    fit(module)
    with pytest.raises(InputError, match="records must be those that the model was trained on"):
        fit(module, RandomiseOnce())


@pytest.mark.parametrize(
    ("callback", "sentence"),
    [
        (DPNoise(hidden=Gaussian(1.0, 1.0)), "protection must be left out where records are randomised"),
        (PrivacyBudget(max_epsilon=1.0), "max_epsilon must be at least the 2 of the randomised records, got 1.0"),
        (PrivacyBudget(max_epsilon=2.0, calibrate=True), "calibrate must be false where records are randomised"),
        (PrivacyBudget(unit="sample"), "unit must be client as that of the randomised records, got 'sample'"),
    ],
)
def test_claims_that_do_not_fit_are_refused(callback: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fit(model(), RandomiseOnce(epsilon=2.0), callback)


def test_a_delta_beyond_the_claimed_one_is_refused() -> None:
    callbacks = RandomiseOnce(features=GaussianDirection(1e-3)), PrivacyBudget(delta=1e-5)
    with pytest.raises(InputError, match=r"delta must be at least the 0\.001 of the records, got 1e-05"):
        fit(model(), *callbacks)


def test_a_budget_that_fits_is_kept_and_other_models_are_refused() -> None:
    module = model(noise_seed=None)
    fit(module, RandomiseOnce(epsilon=2.0), PrivacyBudget(max_epsilon=2.0))
    assert module.privacy is not None
    assert module.privacy.epsilon == 2.0
    with pytest.raises(InputError, match="RandomiseOnce must be used with GFL"):
        FederatedTrainer(max_steps=1, callbacks=[RandomiseOnce()], **QUIET).fit(Central(10, 2), DATA)


def test_randomised_records_learn_where_noise_on_every_round_cannot() -> None:
    """400 clients, ε = 4 for a client's whole data: the labels of neighbours and their features are enough."""
    data, local = DNC(num_clients=400, num_features=30), LocalTraining(1.0, 10, weight_decay=1e-4)
    module = GFL(30, 2, encoder=Linear(), aggregator=APPNP(0.1, 10), local=local, noise_seed=0)
    fit(module, RandomiseOnce(epsilon=4.0), rounds=60, data=data)
    module.use_best()
    assert module.evaluate()["test"].accuracy > 0.75  # type: ignore[attr-defined]


def test_features_that_only_exist_by_mechanisms_change_the_size_of_the_model() -> None:
    module = model()
    fit(module, RandomiseOnce(features=PrivUnit(dimensions=4), share_labels=0))
    assert module.W.shape == (2, 4)  # type: ignore[union-attr]
    assert module.predict_logits().shape == (60, 2)


def test_the_command_line_says_what_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "private.yaml"
    config.write_text(
        "trainer:\n  max_steps: 3\n  enable_progress_bar: false\n  callbacks:\n"
        "    - {class_path: callbacks.RandomiseOnce, init_args: {epsilon: 2.0}}\n"
        "model: {class_path: GFL, init_args: {encoder: {class_path: Linear}, local: {lr: 0.5, steps: 3}}}\n"
        "data: {class_path: DNC, init_args: {num_clients: 50, num_features: 6}}\n"
    )
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "fit", "--config", str(config)])
    cli.main()
    printed = capsys.readouterr().out
    assert "ε = 2 (pure, δ = 0) against everybody" in printed
    assert "protected by  records RandomisedOnce(epsilon=2.0" in printed
    summary = json.loads((tmp_path / "runs/gfl/version_0/summary.json").read_text())
    assert (summary["epsilon"], summary["delta"]) == (2.0, 0.0)
    assert summary["parts"]["records"]["init_args"]["epsilon"] == 2.0
    best = str(tmp_path / "runs/gfl/version_0/best.ckpt")
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", "test", "--config", str(config), "--ckpt_path", best])
    cli.main()
    again = capsys.readouterr().out
    assert f"{summary['test_accuracy']:.4f}" in again


def test_a_graph_from_outside_takes_part_too() -> None:
    module = GFL(10, 2, encoder=Linear())
    fit(module, RandomiseOnce(), data=Given(DATA.graph))
    assert module.privacy is not None


def test_samples_that_stay_at_home_are_read_as_they_are_on_the_scale_of_the_records() -> None:
    records = RandomiseOnce(features=PrivUnit(dimensions=4)).stated["records"]
    graph = DATA.graph
    home = records.at_home(graph)
    assert home.num_features == records.num_features(10, 2) == 6
    torch.testing.assert_close(home.x[:, :4].norm(dim=1), torch.ones(graph.num_samples))
    assert home.x[:, 4:].eq(0).all()
    assert torch.equal(home.y, graph.y)


def test_records_are_drawn_from_a_key_of_the_operating_system_that_is_kept_beside_checkpoints(tmp_path: Path) -> None:
    one, other = model(noise_seed=None), model(noise_seed=None)
    trainer = fit(one, RandomiseOnce(epsilon=2.0))
    fit(other, RandomiseOnce(epsilon=2.0))
    assert not torch.equal(one.federation.graph.x, other.federation.graph.x)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    (key,) = tmp_path.glob("noise-*.key")
    assert key.stat().st_mode & 0o077 == 0
    assert one.noise_key.secret not in (tmp_path / "last.ckpt").read_bytes()
    loaded = GFL.load_from_checkpoint(tmp_path / "last.ckpt")
    found = FederatedTrainer(**QUIET).test(loaded, DATA, verbose=False)
    assert found == trainer.test(one, DATA, verbose=False)
    key.unlink()
    with pytest.raises(InputError, match="ckpt_path must have its noise key beside it"):
        FederatedTrainer(**QUIET).test(GFL.load_from_checkpoint(tmp_path / "last.ckpt"), DATA, verbose=False)


def test_draws_are_bound_to_the_records_that_they_hide() -> None:
    """Another record of one client is randomised by other draws, so that no difference of two runs is free of noise."""
    module = model(noise_seed=None, records=RandomiseOnce(features=PrivUnit(), share_labels=0.0).stated["records"])
    graph = DATA.graph
    test = graph.mask(Split.TEST)
    one = torch.arange(60)[:, None] == int(test.nonzero()[0])
    other = replace(graph, x=torch.where(one, -graph.x, graph.x))
    first, again, second = (module.engine_on(some, 1).graph.x for some in (graph, graph, other))
    assert torch.equal(first, again)
    assert bool((first - second)[test].any(dim=1).all())
    assert torch.equal(first, module.engine_on(graph.without_test(), 1).graph.x)


def test_a_seeded_run_is_reported_as_not_private() -> None:
    module = model()
    fit(module, RandomiseOnce(epsilon=2.0))
    assert module.privacy is not None
    assert module.privacy.epsilon == math.inf
    assert "drawn from noise_seed" in module.privacy.sentence()
    assert module.round_metrics["epsilon"] == math.inf


def test_predicted_numbers_are_on_the_scale_that_training_had(tmp_path: Path) -> None:
    """At home and after loading, whatever scale the data come with; what is told of the data has randomised labels."""
    graph = DATA.graph
    y = 40 + 20 * torch.rand(60, generator=torch.Generator().manual_seed(0)).double()
    numbers = replace(graph, y=y, num_classes=1, loss=SquaredError().fitted(y[graph.mask(Split.TRAIN)]))
    module = GFL(10, 1, encoder=Linear(), aggregator=APPNP(0.1, 5), local=LocalTraining(0.1, 3), noise_seed=0)
    trainer = fit(module, RandomiseOnce(epsilon=1.0, labels=Piecewise(0.0, 100.0)), data=Given(numbers))
    module.calibrate()
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = GFL.load_from_checkpoint(tmp_path / "last.ckpt")
    again = FederatedTrainer(**QUIET).predict(loaded, Given(numbers))
    test, train = graph.mask(Split.TEST), graph.mask(Split.TRAIN)
    error = (module.prediction()[test, 0] - y[test]).abs().mean()
    assert float(error) == pytest.approx(module.evaluate()["test"].mae)  # type: ignore[attr-defined]
    assert again is not None
    torch.testing.assert_close(again[0], module.prediction())
    assert module.half_width is None
    assert torch.equal(module.told(numbers).y[test], y[test])
    assert not (module.told(numbers).y[train] == y[train]).any()
