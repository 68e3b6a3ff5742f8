"""Ways around the account that its fixes leave open at first sight: each is counted, refused, or ends the promise."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lit_types import Given
from protected_fits import DATA, NOISE, QUIET, TOLD, epsilon, fit, model
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint, WeightAveraging

from callbacks import DPSGD, DPNoise, PrivacyBudget, RandomiseOnce
from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.lit.exporting import export
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.patience import Patience
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.personal.own_level import OwnLevel
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.randomise.once import RandomisedOnce
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.privacy.shared_ledger import SharedLedger


def own_records(**options: Any) -> GFL:
    """A linear model, which records may be as large as they are or smaller for."""
    return GFL(10, 2, Linear(), **{"local": LocalTraining(steps=2), **options})


class Impatient(EarlyStopping):
    """Monitors what is private and looks at what is not."""


def test_an_early_stopping_of_ones_own_is_refused_whatever_it_monitors() -> None:
    with pytest.raises(InputError, match=r"callbacks must hold no EarlyStopping of one's own .*, got Impatient"):
        fit(model(), [DPNoise(**TOLD), Impatient("private_val_loss")])
    with pytest.raises(InputError, match=r"callbacks must hold no Patience under a guarantee"):
        fit(model(), [DPNoise(**TOLD), Patience(3)])


def test_what_a_model_shared_before_its_fit_is_no_part_of_a_promise() -> None:
    """Evaluating it shares everybody's ĥ, under no noise at all where that is calibrated by the fit."""
    protecting = [DPNoise(**NOISE)], []
    for callbacks in protecting:
        module = model(participation=Participation(share=0.3))
        FederatedTrainer(callbacks=callbacks, **QUIET).validate(module, DATA, verbose=False)
        report = fit(module, [DPNoise(**NOISE)]).privacy
        assert report is not None
        assert report.gaps == ("ĥ_j (shared to evaluate the model before its fit)",)
    module = model()
    calibrated = [DPNoise(**{name: Gaussian(clip=1.0) for name in NOISE}), PrivacyBudget(1.0, calibrate=True)]
    FederatedTrainer(callbacks=calibrated, **QUIET).validate(module, DATA, verbose=False)
    with pytest.raises(InputError, match=r"max_epsilon must allow at least one round, which spends inf \(ĥ_j \(shared"):
        fit(module, calibrated)


def test_evaluating_a_fit_that_shares_labels_repeats_what_was_shared() -> None:
    module = model(records=SharedLabels())
    trainer = FederatedTrainer(max_steps=2, callbacks=[DPNoise(**NOISE)], **QUIET)
    trainer.fit(module, DATA)
    spent = epsilon(module)
    trainer.validate(module, DATA, verbose=False)
    assert epsilon(module) == spent


def test_labels_that_echo_in_other_samples_of_their_client_are_refused_where_a_sample_is_protected() -> None:
    """DP-SGD bounds what a sample does to its own gradient; its label's echo is in the rows of all."""
    protecting = [DPSGD(noise_multiplier=1.0), PrivacyBudget(1e6, unit="sample")]
    for records in (SharedLabels(), RandomisedOnce(math.inf)):
        with pytest.raises(InputError, match="records must share no labels where DP-SGD protects single samples"):
            fit(model(records=records), protecting)


def test_who_shared_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    """A loaded model that is told that all take part has not repeated a round in which few did."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(participation=Participation(share=0.3)), [DPNoise(**NOISE), saving], 2, enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(tmp_path / "two.ckpt", participation=Participation())
    with pytest.raises(InputError, match="ledger must name a file for what is shared after a protected fit"):
        FederatedTrainer(**QUIET).validate(loaded, DATA, verbose=False)


def test_a_fit_that_goes_on_with_other_data_tells_their_statistics_too(tmp_path: Path) -> None:
    class Telling(DNC):
        @property
        def statistics(self) -> tuple[str, ...]:
            return ("means of all rows",)

    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(), [DPNoise(**NOISE), saving], 4, enable_checkpointing=True)
    telling = Telling(num_clients=60, num_features=10)
    report = fit(model(), [DPNoise(**NOISE)], 6, telling, ckpt_path=tmp_path / "two.ckpt").privacy
    assert report is not None
    assert report.gaps == ("means of all rows",)


def test_terms_of_a_clients_own_tell_more_of_a_sample_than_its_own_loss() -> None:
    source = SC(num_clients=12, num_features=10, train_samples=20, val_samples=4, test_samples=4)
    own = model(personal=OwnLevel(strength=1.0))
    with pytest.raises(InputError, match="personal must be Shared where the unit is a sample and validation losses"):
        fit(own, [DPNoise(**TOLD), PrivacyBudget(unit="sample")], 2, source)
    assert epsilon(fit(model(personal=OwnLevel(strength=1.0)), [DPNoise(**TOLD)], 2, source)) < 2


def test_other_weights_in_a_loaded_model_are_not_shared(tmp_path: Path) -> None:
    """A checkpoint says which round its weights are of; weights put in its place have no round."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(), [DPNoise(**NOISE), saving], 2, enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(tmp_path / "two.ckpt")
    trainer = FederatedTrainer(**QUIET)
    trainer.validate(loaded, DATA, verbose=False)
    loaded.set_parameters({name: weight + 0.1 for name, weight in loaded.current_weights().items()})
    with pytest.raises(InputError, match="weights must be those of a round where uploads are protected"):
        trainer.validate(loaded, DATA, verbose=False)


def test_branches_of_a_run_are_runs_of_their_own(tmp_path: Path) -> None:
    """Other validation events make other releases: two such continuations add up, a repeated one does not."""
    ledger = tmp_path / "ledger.jsonl"
    budget = PrivacyBudget(ledger=str(ledger))
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(), [DPNoise(**TOLD), budget, saving], 6, enable_checkpointing=True, val_check_interval=2)
    fit(model(), [DPNoise(**TOLD), budget], 6, ckpt_path=tmp_path / "two.ckpt", val_check_interval=2)
    assert SharedLedger(ledger).total().runs == 1
    fit(model(), [DPNoise(**TOLD), budget], 6, ckpt_path=tmp_path / "two.ckpt", val_check_interval=3)
    assert SharedLedger(ledger).total().runs == 2


def test_another_path_is_another_run(tmp_path: Path) -> None:
    """It computes the same to rounding, under other noise: a second look at the same updates."""
    ledger = tmp_path / "ledger.jsonl"
    budget = PrivacyBudget(ledger=str(ledger))
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(path="dual"), [DPNoise(**NOISE), budget, saving], 6, enable_checkpointing=True)
    fit(model(path="primal"), [DPNoise(**NOISE), budget], 6, ckpt_path=tmp_path / "two.ckpt")
    assert SharedLedger(ledger).total().runs == 2


def test_an_entry_never_becomes_smaller(tmp_path: Path) -> None:
    """Taken up for fewer rounds and at a larger δ, a run has still made what it has made."""
    ledger = tmp_path / "ledger.jsonl"
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    strict, lax = (PrivacyBudget(delta=delta, ledger=str(ledger)) for delta in (1e-7, 1e-5))
    fit(model(), [DPNoise(**NOISE), strict, saving], 6, enable_checkpointing=True)
    before = SharedLedger(ledger).total()
    fit(model(), [DPNoise(**NOISE), lax], 3, ckpt_path=tmp_path / "two.ckpt")
    after = SharedLedger(ledger).total()
    assert (after.runs, after.epsilon, after.delta) == (1, before.epsilon, 1e-5)


def test_copies_of_a_module_that_share_a_key_are_runs_of_their_own(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    budget, one, other = PrivacyBudget(ledger=str(ledger)), model(), model()
    other.noise_key = one.noise_key
    first = fit(one, [DPNoise(**NOISE), budget])
    fit(other, [DPNoise(**{**NOISE, "update": Gaussian(20.0, 0.5)}), budget])
    total = SharedLedger(ledger).total()
    assert total.runs == 2
    assert first.privacy is not None
    assert total.epsilon > first.privacy.epsilon


def test_evaluations_stop_at_the_budget() -> None:
    """With partial sharing every evaluated model is a sharing; the one that exceeds the budget is not made."""
    some = {"participation": Participation(share=0.3)}
    spent = fit(model(**some), [DPNoise(**NOISE)]).privacy
    assert spent is not None
    tight = fit(model(**some), [DPNoise(**NOISE), PrivacyBudget(spent.epsilon * 1.001)])
    tight.account.charge_evaluation("one", False, True, lambda: 1.0)
    for _ in range(2):
        with pytest.raises(InputError, match="max_epsilon must allow one more sharing to evaluate a model"):
            tight.account.charge_evaluation("another", False, True, lambda: 1.0)
    assert tight.privacy is not None
    assert tight.privacy.epsilon == pytest.approx(spent.epsilon)


def test_checkpoints_that_a_fitted_model_takes_up_are_counted_one_by_one(tmp_path: Path) -> None:
    """`validate` with ckpt_path, on the model that was fitted: each is a sharing, and the same one again is none."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    module = model(participation=Participation(share=0.3))
    trainer = FederatedTrainer(
        max_steps=5, callbacks=[DPNoise(**NOISE), saving], **QUIET | {"enable_checkpointing": True}
    )
    trainer.fit(module, DATA)
    spent = [epsilon(module)]
    for file in [*sorted(tmp_path.glob("*.ckpt"))] * 2:
        trainer.validate(module, DATA, ckpt_path=file, verbose=False)
        spent.append(epsilon(module))
    first, repeated = spent[1:6], spent[6:]
    assert first[0] == spent[0]  # a fit comes with one
    assert first == sorted(set(first))
    assert set(repeated) == {first[-1]}


def test_a_copy_of_a_fitted_model_counts_nothing_on_its_own(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    module = fit(
        model(participation=Participation(share=0.3)), [DPNoise(**NOISE), saving], 4, enable_checkpointing=True
    )
    copied = copy.deepcopy(module)
    assert copied.privacy is None
    with pytest.raises(InputError, match="ledger must name a file for what is shared after a protected fit"):
        FederatedTrainer(**QUIET).validate(copied, DATA, ckpt_path=tmp_path / "step=2.ckpt", verbose=False)
    with pytest.raises(InputError, match=r"a protected model must be trained by one fit, .*, got a model of 4 rounds"):
        fit(copy.deepcopy(module), [DPNoise(**NOISE)])
    assert epsilon(fit(copy.deepcopy(model()), [DPNoise(**NOISE)])) < 2


def test_weights_of_an_unprotected_run_are_not_of_the_protected_one(tmp_path: Path) -> None:
    """Taken up by a model that was fitted under protection, they repeat nothing, and their rounds are not private."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="plain")
    fit(model(), [saving], 3, enable_checkpointing=True)
    module = fit(model(), [DPNoise(**NOISE)], 3)
    with pytest.raises(InputError, match="ledger must name a file for what is shared after a protected fit"):
        FederatedTrainer(**QUIET).validate(module, DATA, ckpt_path=tmp_path / "plain.ckpt", verbose=False)
    going_on = fit(fit(model(), [DPNoise(**NOISE)], 3), [DPNoise(**NOISE)], 5, ckpt_path=tmp_path / "plain.ckpt")
    assert going_on.privacy is not None
    assert going_on.privacy.gaps == ("everything in the first 3 rounds (made without protection)",)


class PutsIn(Callback):
    """Leaves weights of its own, which nothing is known of."""

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        for parameter in pl_module.parameters():
            parameter.data.fill_(0.123)


class Chooses(Callback):
    """Leaves the weights of a round that it likes."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
        if trainer.global_step == 2:
            self.kept = {name: weight.clone() for name, weight in pl_module.current_weights().items()}

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.set_parameters(self.kept)


@pytest.mark.parametrize("callback", [PutsIn(), Chooses()])
@pytest.mark.parametrize("protecting", [DPNoise(**NOISE), RandomiseOnce(epsilon=2.0)])
def test_no_weights_leave_but_those_of_the_best_round_or_the_last(
    callback: Callback, protecting: Callback, tmp_path: Path
) -> None:
    module = own_records()
    trainer = FederatedTrainer(max_steps=4, callbacks=[protecting, callback], **QUIET)
    trainer.fit(module, DATA)
    if module.best.round == 2:
        module.best = replace(module.best, weights=module.state.weights)
    trainer.save_checkpoint(tmp_path / "put.ckpt")
    with pytest.raises(InputError, match=r"unprotected: the weights \(which no round has left\)\), got inf"):
        export(tmp_path / "put.ckpt", tmp_path / "public.ckpt")


def test_fellows_of_rounds_that_were_made_are_as_many_as_they_were(tmp_path: Path) -> None:
    """What m fellows have seen is added up round by round: for more of them it would be too little."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    module = fit(model(), [DPNoise(**NOISE), saving], enable_checkpointing=True)
    with pytest.raises(InputError, match="colluding must be 1 as in the rounds made, whose noise and accounting"):
        FederatedTrainer(callbacks=[PrivacyBudget(colluding=3)], **QUIET).test(module, DATA, verbose=False)
    with pytest.raises(InputError, match="colluding must be 1 as in the checkpoint"):
        fit(model(), [DPNoise(**NOISE), PrivacyBudget(colluding=3)], ckpt_path=tmp_path / "three.ckpt")


def test_a_claim_that_is_restated_once_noise_was_planned_is_not_the_one_reported() -> None:
    class Restates(Callback):
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            pl_module.protect(neighbours="zero_out")

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            pl_module.protect(neighbours="replace", colluding=5)

    report = fit(model(), [DPNoise(**NOISE), Restates()]).privacy
    assert report is not None
    assert report.unit == "one client's whole data set, present or replaced by nothing"
    assert report.colluding == 1


def test_a_budget_that_is_added_later_does_not_erase_another() -> None:
    trainer = FederatedTrainer(max_steps=6, callbacks=[DPNoise(**NOISE), PrivacyBudget(0.5)], **QUIET)
    trainer.callbacks.append(PrivacyBudget(100.0))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"callbacks must state max_epsilon once, .*, got \['PrivacyBudget', 'Priv"):
        trainer.fit(model(), DATA)


def test_a_run_without_events_is_another_than_one_with_them(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    budget = PrivacyBudget(ledger=str(ledger))
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(), [DPNoise(**TOLD), budget, saving], 4, enable_checkpointing=True, val_check_interval=1)
    two = tmp_path / "two.ckpt"
    fit(model(), [DPNoise(**TOLD), budget], 4, ckpt_path=two, val_check_interval=1, limit_val_batches=0)
    assert SharedLedger(ledger).total().runs == 2


def test_other_data_whose_statistics_are_told_cost_everything(tmp_path: Path) -> None:
    class Telling(DNC):
        @property
        def statistics(self) -> tuple[str, ...]:
            return ("means of all rows",)

    ledger = tmp_path / "ledger.jsonl"
    module = fit(model(), [DPNoise(**NOISE), PrivacyBudget(ledger=str(ledger))], 2)
    FederatedTrainer(**QUIET).test(module, Telling(num_clients=60, num_features=10).repeated(1), verbose=False)
    assert SharedLedger(ledger).total().epsilon == math.inf


# records that are randomised once


def test_each_randomisation_is_an_entry_and_the_same_draw_is_one(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    budget = PrivacyBudget(9.0, ledger=str(ledger))
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    module = fit(model(), [RandomiseOnce(epsilon=4.0), budget, saving], 2, enable_checkpointing=True)
    fit(module, [RandomiseOnce(epsilon=4.0), budget], 3)
    fit(model(), [RandomiseOnce(epsilon=4.0), budget], 3, ckpt_path=tmp_path / "two.ckpt")
    FederatedTrainer(callbacks=[budget], **QUIET).test(module, DATA, verbose=False)
    assert SharedLedger(ledger).total().epsilon == 4.0
    second = fit(model(), [RandomiseOnce(epsilon=4.0), budget], 1)
    assert second.privacy is not None
    assert "all 2 runs on the ledger: ε = 8" in second.privacy.sentence()
    with pytest.raises(InputError, match="max_epsilon must leave room for this run on"):
        fit(model(), [RandomiseOnce(epsilon=4.0), budget], 1)
    assert SharedLedger(ledger).total().epsilon == 8.0


def test_other_data_are_randomised_anew_and_paid_for(tmp_path: Path) -> None:
    """The key of a fit with another split of the same people: other draws, which the fit's ε does not cover."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    fit(model(), [RandomiseOnce(epsilon=4.0), saving], 2, enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(tmp_path / "two.ckpt")
    trainer = FederatedTrainer(**QUIET)
    trainer.test(loaded, DATA, verbose=False)
    with pytest.raises(InputError, match="ledger must name a file where other data than those of the fit"):
        trainer.test(loaded, DATA.repeated(1), verbose=False)
    ledger = tmp_path / "ledger.jsonl"
    counting = FederatedTrainer(callbacks=[PrivacyBudget(ledger=str(ledger))], **QUIET)
    counting.test(loaded, DATA.repeated(1), verbose=False)
    assert SharedLedger(ledger).total().epsilon == 4.0


def test_randomised_records_do_not_make_a_warm_start_private(tmp_path: Path) -> None:
    records = RandomisedOnce(2.0, PrivUnit(), share_labels=0)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="plain")
    plain = fit(own_records(), [saving], 3, enable_checkpointing=True)
    copied = own_records(records=records)
    copied.load_state_dict(plain.state_dict())
    loaded = GFL.load_from_checkpoint(tmp_path / "plain.ckpt", records=records)
    ledger = tmp_path / "ledger.jsonl"
    for module in (copied, loaded):
        report = fit(module, [PrivacyBudget(ledger=str(ledger))], 2).privacy
        assert report is not None
        assert report.gaps == ("W̄₀ (neither the seed's weights nor declared public)",)
    assert SharedLedger(ledger).total().epsilon == math.inf
    public = own_records(records=records)
    public.load_state_dict(own_records(seed=5).state_dict())
    assert epsilon(fit(public, [PrivacyBudget(pretrained="public")], 2)) == 2.0


def test_weights_that_are_put_in_do_not_owe_all_to_the_randomised_records() -> None:
    class Fills(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: object) -> None:
            pl_module.W.data.fill_(0.1)

    report = fit(own_records(), [RandomiseOnce(epsilon=2.0), Fills()], 3).privacy
    assert report is not None
    assert report.gaps == ("the weights (which no round has left)",)
    averaged = fit(own_records(), [RandomiseOnce(epsilon=2.0), WeightAveraging()], 3)
    assert epsilon(averaged) == 2.0


def test_what_was_told_beside_randomised_records_is_not_forgotten(tmp_path: Path) -> None:
    class Telling(DNC):
        @property
        def statistics(self) -> tuple[str, ...]:
            return ("means of all rows",)

    source = Telling(num_clients=60, num_features=10)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="two")
    module = fit(own_records(), [RandomiseOnce(epsilon=2.0), saving], 2, source, enable_checkpointing=True)
    trainer, plain = FederatedTrainer(**QUIET), Given(source.graph)
    trainer.test(module, plain, verbose=False)
    loaded = GFL.load_from_checkpoint(tmp_path / "two.ckpt")
    trainer.test(loaded, plain, verbose=False)
    resumed = fit(own_records(), [RandomiseOnce(epsilon=2.0)], 4, plain, ckpt_path=tmp_path / "two.ckpt")
    for one in (module, loaded, resumed):
        assert one.privacy is not None
        assert one.privacy.gaps == ("means of all rows",)
