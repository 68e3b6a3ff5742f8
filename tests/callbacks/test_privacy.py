"""The privacy callbacks in a fit: noise acts, ε is counted, kept and never exceeded, and what cannot be is refused."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from protected_fits import NOISE, QUIET
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, WeightAveraging
from pytorch_lightning.loggers import CSVLogger

from callbacks import DPSGD, DPNoise, PrivacyBudget
from gfl_lightning.checks import InputError
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.gaussian import gaussian_epsilon
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection

LATTICE = 1e-4
"""What rounding to a lattice may add to ε."""
BOUNDS: dict[str, Any] = {"hidden": Gaussian(0, 1.0), "jacobian": Gaussian(0, 1.0), "update": Gaussian(0, 0.5)}


def data() -> DNC:
    return DNC(num_clients=60, num_features=10)


def fit(
    callbacks: list[Callback],
    rounds: int = 6,
    model: dict[str, Any] | None = None,
    ckpt_path: Path | None = None,
    source: DataSet | None = None,
    **trainer: Any,
) -> GFL:
    source = source or data()
    small = {"encoder": MLP((8,)), "local": LocalTraining(steps=2)}
    module = GFL(source.graph.num_features, 2, **small | (model or {}))
    made = FederatedTrainer(max_steps=rounds, callbacks=callbacks, **QUIET | trainer)
    made.fit(module, source, ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return module


def same(a: GFL, b: GFL) -> bool:
    return all(torch.equal(a.state.weights[name], weight) for name, weight in b.state.weights.items())


def test_noise_acts_and_none_changes_not_a_bit() -> None:
    plain = fit([])
    assert same(fit([DPNoise()]), plain)
    seeded = {"noise_seed": 3}
    assert same(fit([DPNoise(Gaussian(0.2))], model=seeded), fit([DPNoise(Gaussian(0.2))], model=seeded))
    assert not same(fit([DPNoise(Gaussian(0.2))]), fit([DPNoise(Gaussian(0.2))]))
    small, large = (fit([DPNoise(Gaussian(std))], model=seeded) for std in (0.2, 2.0))
    assert not same(small, plain)
    assert not same(small, large)
    assert not same(fit([DPNoise(jacobian=Gaussian(0.2))]), plain)
    assert not same(fit([DPNoise(update=Gaussian(0.2))]), plain)
    assert plain.privacy is None


def test_epsilon_after_every_round_is_logged(tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path))
    module = fit([DPNoise(**NOISE)], logger=logger)
    with (Path(logger.log_dir) / "metrics.csv").open() as stream:
        logged = [float(row["epsilon"]) for row in csv.DictReader(stream)]
    hidden, jacobian, update = (2 / 30) ** 2, (2 / 40) ** 2, (2 * 0.5 / 10) ** 2
    exact = [gaussian_epsilon(math.sqrt((t + 1) * hidden + t * (jacobian + update)), 1e-5) for t in range(1, 7)]
    assert logged == pytest.approx(exact, rel=LATTICE)
    assert module.privacy is not None
    assert module.privacy.epsilon == pytest.approx(exact[-1], rel=LATTICE)
    assert module.privacy.epsilon_fellow < module.privacy.epsilon


def test_only_the_rounds_a_client_takes_part_in_count() -> None:
    """The server sees who takes part, so partial participation is no amplification; but who sits out pays nothing."""
    module = fit([DPNoise(**NOISE)], model={"participation": Participation(2, 0.5)})
    trained, shared = module.federation.schedule.attendance(range(6))
    hidden, jacobian, update = (2 / 30) ** 2, (2 / 40) ** 2, (2 * 0.5 / 10) ** 2
    most = float((shared * (hidden + jacobian) + trained * update).max()) + 2 * hidden
    assert module.privacy is not None
    assert module.privacy.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(most), 1e-5), rel=LATTICE)
    assert module.privacy.epsilon_fellow <= module.privacy.epsilon


def test_noise_without_bounds_is_named_as_no_guarantee() -> None:
    module = fit([DPNoise(Gaussian(1.0), Gaussian(1.0))], rounds=2)
    assert module.privacy is not None
    assert module.privacy.epsilon == math.inf
    assert module.privacy.gaps == ("ĥ_j (no bound)", "∇ĥ_j (no bound)", "W_k (neither bound nor noise)")
    assert module.round_metrics["epsilon"] == math.inf


def test_a_budget_stops_before_the_round_that_would_exceed_it() -> None:
    seeded = {"noise_seed": 0}
    free = fit([DPNoise(**NOISE)], rounds=10, model=seeded)
    after_four = fit([DPNoise(**NOISE)], rounds=4, model=seeded)
    assert after_four.privacy is not None
    assert after_four.privacy.epsilon == math.inf  # of a seed
    budget = after_four.privacy.nominal * 1.0001
    stopped = fit([DPNoise(**NOISE), PrivacyBudget(budget)], rounds=10, model=seeded, min_steps=8)
    assert stopped.state.round == 4
    assert same(stopped, after_four)
    assert not same(stopped, free)
    assert stopped.privacy is not None
    assert stopped.privacy.nominal <= budget
    assert stopped.privacy.nominal == pytest.approx(after_four.privacy.nominal)


def test_a_budget_below_one_round_is_refused_before_it() -> None:
    with pytest.raises(InputError, match=r"max_epsilon must allow at least one round, which spends .*, got 0.01"):
        fit([DPNoise(**NOISE), PrivacyBudget(0.01)])


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("neighbours", ["replace", "zero_out"])
def test_calibrated_noise_spends_the_budget_in_all_rounds(order: int, neighbours: Any) -> None:
    """The order of the callbacks does not matter."""
    callbacks = [DPNoise(**BOUNDS), PrivacyBudget(5.0, calibrate=True, neighbours=neighbours)][::order]
    module = fit(callbacks, rounds=7)
    assert module.state.round == 7
    assert module.privacy is not None
    assert 4.95 < module.privacy.epsilon <= 5.0
    assert module.federation.protection.hidden.is_noisy


def test_dp_sgd_protects_samples_with_the_sampling_rate() -> None:
    source = SC(num_clients=12, num_features=8, train_samples=40, val_samples=4, test_samples=4)
    model = {"local": LocalTraining(steps=2, batch_size=8), "estimator": "v1"}
    noise = [DPNoise(Gaussian(std=1.0, clip=1.0)), DPSGD(clip=0.5, noise_multiplier=2.0)]
    found = {
        name: fit([*noise, PrivacyBudget(unit="sample", neighbours=name)], 5, model, source=source).privacy
        for name in ("replace", "zero_out")
    }
    assert found["zero_out"] is not None
    assert found["replace"] is not None
    assert found["zero_out"].accountant == "RDP"
    assert found["replace"].accountant == "exact"
    assert found["zero_out"].epsilon < 0.5 * found["replace"].epsilon
    of_clients = fit(noise, 5, model, source=source).privacy
    assert of_clients is not None
    assert of_clients.gaps == ("W_k (neither bound nor noise; DP-SGD protects samples, not clients)",)


@pytest.mark.parametrize("callbacks", [[DPNoise(**NOISE)], [DPNoise(**BOUNDS), PrivacyBudget(5.0, calibrate=True)]])
@pytest.mark.parametrize("model", [{}, {"participation": Participation(share=0.5)}])
def test_a_resumed_run_keeps_its_epsilon_and_its_noise(
    callbacks: list[Callback], model: dict[str, Any], tmp_path: Path
) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=5, filename="five")
    whole = fit([*callbacks, saving], 8, model, enable_checkpointing=True)
    resumed = fit(callbacks, 8, model, tmp_path / "five.ckpt")
    assert same(resumed, whole)
    assert resumed.privacy == whole.privacy


def test_a_checkpoint_brings_its_protection_where_the_run_names_none(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=5, filename="five")
    whole = fit([DPNoise(**NOISE), saving], 8, enable_checkpointing=True)
    resumed = fit([], 8, ckpt_path=tmp_path / "five.ckpt")
    assert same(resumed, whole)
    assert resumed.privacy == whole.privacy


CHANGES: list[tuple[list[Callback], dict[str, Any], str]] = [
    ([DPNoise(Gaussian(60.0, 1.0))], {}, r"hidden must be Gaussian\(std=30.0, clip=1.0\) as in the checkpoint"),
    ([DPNoise(Gaussian(30.0, 2.0))], {}, r"hidden must be Gaussian\(std=30.0, clip=1.0\) as in the checkpoint"),
    ([DPNoise(**NOISE), PrivacyBudget(unit="sample")], {}, "unit must be 'client' as in the checkpoint"),
    ([PrivacyBudget(neighbours="zero_out")], {}, "neighbours must be 'replace' as in the checkpoint"),
    ([], {"seed": 3}, "seed must be left out or be 0, as in the checkpoint"),
]


@pytest.mark.parametrize(("callbacks", "model", "message"), CHANGES)
def test_noise_of_rounds_made_is_not_drawn_again_at_another_size(
    callbacks: list[Callback], model: dict[str, Any], message: str, tmp_path: Path
) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    module = fit([DPNoise(**NOISE), saving], 3, enable_checkpointing=True)
    with pytest.raises(InputError, match=message):
        fit(callbacks, 6, model, tmp_path / "three.ckpt")
    if callbacks:
        with pytest.raises(InputError, match=message.replace("checkpoint", "rounds made")):
            FederatedTrainer(callbacks=callbacks, **QUIET).test(module, datamodule=data(), verbose=False)


def test_calibrated_noise_stays_as_it_was(tmp_path: Path) -> None:
    """Another number of rounds, later, changes neither the noise nor the budget."""
    callbacks: list[Callback] = [DPNoise(**BOUNDS), PrivacyBudget(5.0, calibrate=True)]
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=4, filename="four")
    source = data()
    module = fit([*callbacks, saving], 7, enable_checkpointing=True, source=source)
    noise = module.federation.protection
    FederatedTrainer(callbacks=callbacks, **QUIET).test(module, datamodule=source, verbose=False)
    assert module.federation.protection == noise
    longer = fit(callbacks, 50, ckpt_path=tmp_path / "four.ckpt", source=source)
    assert longer.federation.protection == noise
    assert longer.state.round == 7
    assert same(longer, module)


def test_how_epsilon_is_reported_may_change_on_resume(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    first = fit([DPNoise(**NOISE), saving], 3, enable_checkpointing=True)
    assert first.privacy is not None
    resumed = fit([PrivacyBudget(max_epsilon=50.0, delta=1e-7)], 4, ckpt_path=tmp_path / "three.ckpt").privacy
    assert resumed is not None
    assert resumed.delta == 1e-7
    assert resumed.epsilon > first.privacy.epsilon


def test_a_protected_model_is_not_fitted_twice(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    module = fit([DPNoise(**NOISE), PrivacyBudget(50.0), saving], 3, enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(tmp_path / "three.ckpt", weights_only=True)
    for again in (module, loaded):
        with pytest.raises(
            InputError, match=r"a protected model must be trained by one fit, .*, got a model of 3 rounds"
        ):
            FederatedTrainer(max_steps=3, callbacks=[DPNoise(**NOISE)], **QUIET).fit(again, datamodule=data())


def test_a_round_counts_even_if_it_diverges() -> None:
    source = data()
    module = GFL(source.graph.num_features, 2, MLP((8,)), local=LocalTraining(1e30, 50))
    trainer = FederatedTrainer(max_steps=3, callbacks=[DPNoise(Gaussian(30.0, 1.0))], **QUIET)
    with pytest.raises(DivergedError):
        trainer.fit(module, datamodule=source)
    assert module.privacy is not None
    assert "3 rounds, 1 of them made" in module.privacy.composed


def test_a_claim_alone_is_answered(tmp_path: Path) -> None:
    privacy = fit([PrivacyBudget()], rounds=2).privacy
    assert privacy is not None
    assert privacy.epsilon == math.inf
    assert len(privacy.gaps) == 3


def test_rounds_made_without_protection_are_never_forgotten(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    fit([saving], 3, enable_checkpointing=True)
    resumed = fit([DPNoise(**NOISE)], 6, ckpt_path=tmp_path / "three.ckpt")
    assert resumed.privacy is not None
    assert resumed.privacy.epsilon == math.inf
    assert resumed.privacy.gaps == ("everything in the first 3 rounds (made without protection)",)


def test_evaluation_of_the_best_round_repeats_its_uploads(tmp_path: Path) -> None:
    """No further release: the metrics of the best model, tested later, are those that its round reported."""
    callbacks: list[Callback] = [DPNoise(Gaussian(1.0))]
    saving = ModelCheckpoint(tmp_path, monitor="val_loss", filename="best")
    source = data()
    module = fit([*callbacks, saving], 9, enable_checkpointing=True, val_check_interval=1, source=source)
    module.use_best()
    assert module.evaluate()["val"].loss == module.best.val_loss
    for extra in (callbacks, []):
        trainer = FederatedTrainer(max_steps=9, callbacks=extra, **QUIET)
        loaded = GFL.load_from_checkpoint(tmp_path / "best.ckpt", weights_only=True)
        (found,) = trainer.validate(loaded, datamodule=source, verbose=False)
        assert found["val_loss"] == pytest.approx(module.best.val_loss, rel=1e-6)


@pytest.mark.parametrize(
    ("callback", "model", "message"),
    [
        (DPNoise(jacobian=Gaussian(1.0)), {"estimator": "v1"}, "jacobian noise must be 0 where the estimator is v1"),
        (DPNoise(Gaussian(1.0)), {"protocol": "gram"}, "protocol must be jacobian where uploads are protected"),
        (DPNoise(Gaussian(1.0)), {"aggregator": Identity()}, "hidden noise must be 0 where the aggregator is the id"),
        (PrivacyBudget(3.0), {}, r"max_epsilon must allow at least one round, which spends inf \(ĥ_j \(neither bound"),
    ],
)
def test_unsupported_combinations_fail_before_the_first_round(
    callback: Callback, model: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit([callback], model=model)


def test_a_budget_on_noise_without_bounds_is_refused() -> None:
    with pytest.raises(InputError, match=r"max_epsilon must allow at least one round, which spends inf .*, got 3\.0"):
        fit([DPNoise(Gaussian(1.0)), PrivacyBudget(3.0)])
    with pytest.raises(InputError, match=r"calibrate must find a bound on everything that is released, got ∇ĥ_j"):
        fit([DPNoise(Gaussian(clip=1.0), update=Gaussian(clip=1.0)), PrivacyBudget(3.0, calibrate=True)])


@pytest.mark.parametrize("callback", [DPNoise(Gaussian(1.0)), DPSGD(), PrivacyBudget()])
def test_models_without_clients_are_refused(callback: Callback) -> None:
    source = data()
    trainer = FederatedTrainer(max_steps=1, callbacks=[callback], **QUIET)
    with pytest.raises(InputError, match=f"callbacks.{type(callback).__name__} must be used with GFL, .*, got Central"):
        trainer.fit(Central(source.graph.num_features, 2), datamodule=source)


def test_weights_of_no_round_are_not_evaluated_under_used_noise() -> None:
    with pytest.raises(InputError, match="callbacks must hold no WeightAveraging where uploads are protected"):
        fit([DPNoise(Gaussian(1.0)), WeightAveraging()], rounds=4)
    module = fit([DPNoise(Gaussian(1.0))], rounds=4)
    module.get_parameter("W1").data += 1
    with pytest.raises(InputError, match="weights must be those of a round where uploads are protected"):
        module.evaluate()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPNoise(Gaussian(std=-1.0)), "std must be finite and at least 0, got -1.0"),
        (lambda: DPSGD(clip=math.inf), "clip must be positive and finite, got inf"),
        (lambda: DPSGD(noise_multiplier=-1.0), "noise_multiplier must be finite and at least 0, got -1.0"),
        (lambda: PrivacyBudget(-1.0), "max_epsilon must be positive and finite, got -1.0"),
        (lambda: PrivacyBudget(unit="row"), "unit must be one of client, sample, got 'row'"),  # type: ignore[arg-type]
    ],
)
def test_values_out_of_range_are_refused_when_named(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_callbacks_set_only_what_they_state_and_the_model_may_state_it_itself() -> None:
    protection = Protection(hidden=NOISE["hidden"], update=NOISE["update"], unit="sample")
    model = {"protection": protection, "guarantee": Guarantee(delta=1e-7, neighbours="zero_out")}
    stated = fit([DPNoise(jacobian=NOISE["jacobian"]), PrivacyBudget(max_epsilon=50.0)], 3, model).account
    assert (stated.stated.hidden, stated.stated.jacobian) == (NOISE["hidden"], NOISE["jacobian"])
    assert (stated.stated.unit, stated.guarantee.delta, stated.guarantee.neighbours) == ("sample", 1e-7, "zero_out")
    assert stated.guarantee.max_epsilon == 50.0
    seeded = {"noise_seed": 0}
    in_the_model = fit([], 5, seeded | {"protection": Protection(**NOISE)})
    by_callback = fit([DPNoise(**NOISE)], 5, seeded)
    assert same(in_the_model, by_callback)
    assert in_the_model.privacy == by_callback.privacy
    assert DPSGD(2.0).stated == {"steps": StepNoise(2.0)}
    assert not DPNoise().stated
    assert not PrivacyBudget().stated


def test_one_field_is_stated_once() -> None:
    FederatedTrainer(callbacks=[DPNoise(Gaussian(1.0)), DPNoise(update=Gaussian(1.0))], **QUIET)
    with pytest.raises(InputError, match=r"callbacks must state hidden once, .*, got \['DPNoise', 'DPNoise'\]"):
        FederatedTrainer(callbacks=[DPNoise(Gaussian(1.0)), DPNoise(Gaussian(2.0))], **QUIET)


def test_averaged_weights_are_refused_where_the_model_itself_states_protection() -> None:
    with pytest.raises(InputError, match="callbacks must hold no WeightAveraging where uploads are protected"):
        fit([WeightAveraging()], 4, {"protection": Protection(hidden=Gaussian(1.0))})


def test_a_round_does_not_start_from_weights_of_no_round_under_used_noise() -> None:
    class Shift(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: int, batch_idx: int) -> None:
            if batch_idx == 2:
                pl_module.get_parameter("W1").data += 1

    with pytest.raises(InputError, match="weights must be those of a round where uploads are protected"):
        fit([DPNoise(Gaussian(1.0)), Shift()], rounds=4)
    shifted = fit([Shift()], rounds=4)
    assert not same(shifted, fit([], rounds=4))
