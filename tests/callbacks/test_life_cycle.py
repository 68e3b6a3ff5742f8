"""An account that cannot be fooled: by where a fit starts, what steers it, what is evaluated later, or other runs."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lit_types import Given
from protected_fits import DATA, NOISE, QUIET, TOLD, epsilon, fit, model
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from callbacks import DPSGD, DPNoise, PrivacyBudget
from gfl_lightning.checks import InputError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.privacy.gaussian import gaussian_epsilon
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.shared_ledger import Entry, SharedLedger

# where a fit starts


def test_weights_that_saw_the_data_before_count_as_an_unprotected_release(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=6, filename="six")
    warm = fit(model(), [saving], enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(tmp_path / "six.ckpt")
    copied = model()
    copied.load_state_dict(warm.state_dict())
    for module in (warm, loaded, copied):
        report = fit(module, [DPNoise(**NOISE)]).privacy
        assert report is not None
        assert report.epsilon == math.inf
        assert report.gaps == ("W̄₀ (neither the seed's weights nor declared public)",)
    another = model()
    another.load_state_dict(warm.state_dict())
    with pytest.raises(InputError, match=r"max_epsilon must allow at least one round, which spends inf \(W̄₀"):
        fit(another, [DPNoise(**NOISE), PrivacyBudget(8.0)])


def test_weights_that_are_declared_public_are_not(tmp_path: Path) -> None:
    public = model()
    public.load_state_dict(model(seed=5).state_dict())
    assert epsilon(fit(public, [DPNoise(**NOISE), PrivacyBudget(pretrained="public")])) < 2
    assert epsilon(fit(model(), [DPNoise(**NOISE)])) < 2
    assert epsilon(fit(model(), [DPNoise(**NOISE)], precision="64-true")) < 2


# what steers it


def plateau(optimizer: Optimizer) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=10.0)


def test_exact_metrics_steer_nothing_under_a_guarantee() -> None:
    for monitor in ("val_loss", "train_loss", "private_val_loss"):
        with pytest.raises(InputError, match=rf"callbacks must hold no EarlyStopping on an exact .*, got '{monitor}'"):
            fit(model(), [DPNoise(**NOISE), EarlyStopping(monitor)])
    with pytest.raises(InputError, match=r"callbacks must hold no EarlyStopping on an exact .*, got 'val_loss'"):
        fit(model(), [DPNoise(**TOLD), EarlyStopping("val_loss")])
    with pytest.raises(InputError, match=r"lr_scheduler must not watch an exact metric .*, got ReduceLROnPlateau"):
        fit(model(lr_scheduler=plateau), [DPNoise(**NOISE)])
    fit(model(lr_scheduler=plateau), [DPNoise(Gaussian(1.0)), EarlyStopping("val_loss")])  # nothing is promised


def test_a_private_validation_loss_may_steer_and_is_paid_for() -> None:
    stop = EarlyStopping("private_val_loss", patience=2, min_delta=1e9)
    module = fit(model(lr_scheduler=plateau), [DPNoise(**TOLD), stop], 40, val_check_interval=2)
    assert module.state.round == 6
    assert module.round_metrics["lr"] < 0.5
    hidden, jacobian, update, told = (2 / 30) ** 2, (2 / 40) ** 2, (1 / 10) ** 2, (1 / 20) ** 2
    of_val = (40 + 1) * hidden + 40 * jacobian + 21 * told
    of_train = (40 + 1) * hidden + 40 * (jacobian + update)
    filtered = gaussian_epsilon(math.sqrt(max(of_val, of_train)), 1e-5)
    assert module.privacy is not None
    assert module.privacy.epsilon == pytest.approx(filtered, rel=1e-4)
    assert "in 40 rounds, 6 of them made" in module.privacy.composed
    assert "validation loss" in module.privacy.composed


def test_the_private_validation_loss_is_in_what_is_reported() -> None:
    """So little noise that nothing else counts: three events, and one at the end of a plan that ends in between."""
    report = fit(model(), [DPNoise(**TOLD | {"validation": Gaussian(1.0, 1.0)})], 7, val_check_interval=2).privacy
    assert report is not None
    told = 4 * 1.0 + 8 * (2 / 30) ** 2 + 7 * (2 / 40) ** 2
    assert report.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(told), 1e-5), rel=1e-4)
    stop = EarlyStopping("private_val_loss", patience=1, min_delta=1e9)
    noise = DPNoise(**TOLD | {"validation": Gaussian(1.0, 1.0)})
    early = fit(model(), [noise, stop], 7, val_check_interval=2)
    assert early.state.round == 4
    assert epsilon(early) == pytest.approx(report.epsilon, rel=1e-4)


def test_a_stop_on_the_way_without_any_limit_has_no_epsilon() -> None:
    stop = EarlyStopping("private_val_loss", patience=1, min_delta=1e9)
    report = fit(model(), [DPNoise(**TOLD), stop], -1, val_check_interval=1).privacy
    assert report is not None
    assert report.gaps == ("the number of rounds (chosen on the way, with no limit planned)",)
    within = fit(model(), [DPNoise(**TOLD), stop, PrivacyBudget(3.0)], -1, val_check_interval=1).privacy
    assert within is not None
    assert 2.5 < within.epsilon <= 3.0


def test_replacing_a_validation_client_changes_no_number_of_rounds() -> None:
    """Neighbours in one validation client: what EarlyStopping sees of it is under noise that hides it."""
    graph = DATA.graph
    client = int(graph.mask(Split.VAL).nonzero()[0])
    x = graph.x.clone()
    x[client] = 1e3
    rounds: list[list[int]] = [[], []]
    for seed in range(6):
        for where, data in enumerate((graph, replace(graph, x=x))):
            stop = EarlyStopping("private_val_loss", patience=1)
            source = Given(data)
            module = fit(model(noise_seed=seed), [DPNoise(**TOLD), stop], 15, source, val_check_interval=1)
            rounds[where].append(module.state.round)
    assert rounds[0] == rounds[1]


def test_the_round_that_is_kept_is_inside_the_guarantee() -> None:
    last = fit(model(noise_seed=0), [DPNoise(**NOISE)])
    assert last.best.round == 6
    chosen = fit(model(), [DPNoise(**TOLD)], 12, val_check_interval=3)
    assert chosen.best.round in (3, 6, 9, 12)
    exact = fit(model(noise_seed=0), [DPNoise(**NOISE), PrivacyBudget(selection="exact")])
    assert exact.best.round < 6
    assert exact.privacy is not None
    assert "the choice of the kept round, by exact validation losses" in exact.privacy.outside
    assert "not covered: the choice of the kept round" in exact.privacy.scope()
    assert last.privacy is not None
    assert not any("kept round" in one for one in last.privacy.outside)


# what is evaluated later


def test_every_sharing_after_the_fit_is_counted_or_refused(tmp_path: Path) -> None:
    """With partial sharing an evaluation makes everybody share, at each checkpoint anew."""
    saving = ModelCheckpoint(tmp_path / "c", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    some = {"participation": Participation(share=0.3)}
    module = fit(model(**some), [DPNoise(**NOISE), saving], enable_checkpointing=True)
    before = epsilon(module)
    trainer = FederatedTrainer(**QUIET)
    trainer.validate(module, datamodule=DATA, verbose=False)
    trainer.validate(module, datamodule=DATA, verbose=False)
    assert epsilon(module) == before
    files = sorted((tmp_path / "c").glob("*.ckpt"))
    assert len(files) == 6
    with pytest.raises(InputError, match=r"ledger must name a file for what is shared after a protected fit"):
        trainer.validate(GFL.load_from_checkpoint(files[2]), datamodule=DATA, verbose=False)
    ledger = tmp_path / "ledger.jsonl"
    counting = FederatedTrainer(callbacks=[PrivacyBudget(ledger=str(ledger))], **QUIET)
    for _ in range(2):
        for file in files[:3]:
            counting.validate(GFL.load_from_checkpoint(file), datamodule=DATA, verbose=False)
    total = SharedLedger(ledger).total()
    assert total.runs == 3
    assert total.epsilon == pytest.approx(3 * gaussian_epsilon(2 / 30, 1e-5), rel=1e-4)


def test_where_everybody_shares_an_evaluation_repeats_a_round(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    fit(model(), [DPNoise(**NOISE), saving], enable_checkpointing=True)
    loaded = GFL.load_from_checkpoint(next(tmp_path.glob("*.ckpt")))
    trainer = FederatedTrainer(**QUIET)
    trainer.validate(loaded, datamodule=DATA, verbose=False)
    other = DATA.repeated(3)
    with pytest.raises(InputError, match=r"ledger must name a file for what is shared after a protected fit"):
        trainer.test(loaded, datamodule=other, verbose=False)


def test_a_checkpoint_without_its_key_is_of_no_use(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=3, filename="three")
    module = fit(model(), [DPNoise(**NOISE), saving], enable_checkpointing=True)
    (key,) = tmp_path.glob("noise-*.key")
    held = (tmp_path / "three.ckpt").read_bytes()
    assert module.noise_key.secret not in held
    assert module.noise_key.secret.hex().encode() not in held
    key.unlink()
    with pytest.raises(InputError, match=r"ckpt_path must have its noise key beside it, .*, got no noise-\w+\.key in"):
        fit(model(), [DPNoise(**NOISE)], ckpt_path=tmp_path / "three.ckpt")


# other runs


def test_ten_runs_add_up_and_the_eleventh_is_refused(tmp_path: Path) -> None:
    ledger = str(tmp_path / "data" / "ledger.jsonl")
    one = gaussian_epsilon(math.sqrt(3 * (2 / 30) ** 2 + 2 * (2 / 40) ** 2 + 2 * (1 / 10) ** 2), 1e-5) * 1.001
    for number in range(1, 11):
        module = fit(model(), [DPNoise(**NOISE), PrivacyBudget(10 * one, ledger=ledger)], 2)
        assert module.privacy is not None
        assert module.privacy.total is not None
        assert module.privacy.total.epsilon == pytest.approx(number * one, rel=2e-3)
    assert "all 10 runs on the ledger" in module.privacy.sentence()
    rule = r"max_epsilon must allow at least one round, which spends .* beside the .* of other runs on .*ledger.jsonl"
    with pytest.raises(InputError, match=rule):
        fit(model(), [DPNoise(**NOISE), PrivacyBudget(10 * one, ledger=ledger)], 2)
    assert SharedLedger(Path(ledger)).total().runs == 10


class Crash(Callback):
    def on_train_batch_start(self, trainer: Any, *_: object) -> None:
        if trainer.global_step == 1:
            raise RuntimeError("a crash")


def test_rounds_are_written_down_before_they_are_made(tmp_path: Path) -> None:
    """What a crashed run may have spent is on the ledger; taken up again it is the same run."""
    ledger = str(tmp_path / "ledger.jsonl")
    budget = PrivacyBudget(ledger=ledger)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, filename="one")
    with pytest.raises(RuntimeError, match="a crash"):
        fit(model(), [DPNoise(**NOISE), budget, saving, Crash()], enable_checkpointing=True)
    crashed = SharedLedger(Path(ledger)).total()
    whole = fit(model(), [DPNoise(**NOISE), budget], ckpt_path=tmp_path / "one.ckpt")
    after = SharedLedger(Path(ledger)).total()
    assert crashed.epsilon == after.epsilon == pytest.approx(epsilon(whole))
    assert after.runs == 1


def write(file: Path, run: str) -> None:
    for _ in range(20):
        SharedLedger(file).write(Entry(run, 1.0, 1e-5, "client"), most=5.0)


def attempt(file: Path, run: str) -> None:
    try:
        write(file, run)
    except InputError:
        return


def test_processes_take_turns_and_a_budget_holds_for_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    start = multiprocessing.get_context("fork")
    processes = [start.Process(target=attempt, args=(file, f"run {number}")) for number in range(12)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=600)
    assert SharedLedger(file).total().epsilon == 5.0
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_a_torn_line_is_no_entry_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    write(file, "first")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    assert SharedLedger(file).total().runs == 1
    write(file, "second")
    assert SharedLedger(file).total().runs == 2
    with pytest.raises(
        InputError, match="ledger must be about 'client' as its entries are, for they add up, got 'row'"
    ):
        SharedLedger(file).write(Entry("third", 1.0, 1e-5, "row"))
    file.write_bytes(whole + b"{}\n")
    with pytest.raises(InputError, match=r"ledger must hold an entry in each line, got .* whose line 2 is none"):
        SharedLedger(file).total()


def test_a_new_ledger_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that fails after the first entry must not lose the file."""
    flushed, sync = [], os.fsync

    def noted(place: int) -> None:
        flushed.append(stat.S_ISDIR(os.fstat(place).st_mode))
        sync(place)

    monkeypatch.setattr(os, "fsync", noted)
    for run in ("first", "second"):
        SharedLedger(tmp_path / "ledger.jsonl").write(Entry(run, 1.0, 1e-5, "client"))
    assert flushed == [False, True, False]


def test_colluding_fellows_are_told_more(tmp_path: Path) -> None:
    found = [fit(model(), [DPNoise(**NOISE), PrivacyBudget(colluding=m)]).privacy for m in (1, 2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].epsilon_fellow < found[1].epsilon_fellow <= found[1].epsilon
    assert "against 2 colluding fellow clients" in found[1].sentence()


# data that would end a fit


def missing_class(graph: ClientGraph) -> ClientGraph:
    y = torch.where(graph.mask(Split.TRAIN), 0, graph.y)
    return replace(graph, y=y)


def test_a_class_without_training_samples_ends_no_protected_fit() -> None:
    source = Given(missing_class(DATA.graph))
    assert epsilon(fit(model(), [DPNoise(**NOISE)], 2, source)) < 2
    with pytest.raises(InputError, match="graph must have a training sample of every class"):
        fit(model(), [], 2, source)


@pytest.mark.parametrize("path", ["dual", "primal", "general"])
def test_updates_that_are_not_finite_end_no_protected_fit(path: str) -> None:
    """Legal features with a rate at which everything overflows: null records under the same noise."""
    x = DATA.graph.x * 1e8
    wild = model(local=LocalTraining(1e30, 3), path=path)
    module = fit(wild, [DPNoise(**NOISE)], 3, Given(replace(DATA.graph, x=x)))
    assert module.state.round == 3
    assert all(bool(weight.isfinite().all()) for weight in module.state.weights.values())


@pytest.mark.parametrize("path", ["primal", "general"])
def test_nor_do_samples_in_dp_sgd(path: str) -> None:
    source = SC(num_clients=12, num_features=10, train_samples=20, val_samples=4, test_samples=4)
    wild = Given(replace(source.graph, x=source.graph.x * 1e8))
    noise: list[Callback] = [DPNoise(Gaussian(1.0, 1.0)), DPSGD(0.5, 2.0), PrivacyBudget(unit="sample")]
    module = fit(model(local=LocalTraining(1e20, 3, 5), estimator="v1", path=path), noise, 3, wild)
    assert all(bool(weight.isfinite().all()) for weight in module.state.weights.values())
    assert epsilon(module) < math.inf
