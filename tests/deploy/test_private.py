"""Protected uploads at sites: keys and accounts on their own disks, charged before an answer leaves."""

from __future__ import annotations

import errno
import math
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_builders import PUBLIC, driver, make_tables, plan, roster, settings, site, sites

from gfl_lightning.checks import InputError
from gfl_lightning.deploy import site_account
from gfl_lightning.deploy.asking import TooFewSitesError
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.folders import ServerFolder
from gfl_lightning.deploy.news import RoundNews
from gfl_lightning.deploy.outcome import read_outcome, write_outcome
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.site import Site
from gfl_lightning.deploy.site_account import STATISTICS, SiteAccount
from gfl_lightning.deploy.status import status_of
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.deploy.transport import LocalTransport
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protocol.messages import RepresentationAggregate, RepresentationUpload
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.reports.screen import render

NOISY = Protection(Gaussian(2.0, 0.5), Gaussian(4.0, 1.0), Gaussian(1.0, 0.5))


def private(rounds: int = 2, **options: Any) -> Plan:
    tables = TablePlan(type(settings())(task="sc", missing="fill"), **PUBLIC)  # type: ignore[arg-type]
    options = {"protection": NOISY, "tables": tables} | options
    return plan("sc", rounds, encoder=MLP((4,)), local=LocalTraining(0.2, 2), **options)


def account(one: Site) -> SiteAccount:
    assert isinstance(one._account, SiteAccount)
    return one._account


def test_the_account_of_a_site_is_that_of_its_releases(tmp_path: Path) -> None:
    """Two trainings, and shares before, between, after them and of the last model: four; μ² adds up."""
    make_tables(tmp_path)
    at = sites(tmp_path, private())
    outcome = driver(tmp_path, private(), at).run()
    mu = {"hidden": 2 * 0.5 / 2.0, "jacobian": 2 * 1.0 / 4.0, "update": 2 * 0.5 / 1.0}
    expected = 4 * (mu["hidden"] ** 2 + mu["jacobian"] ** 2) + 2 * mu["update"] ** 2
    for one in at.values():
        spent = account(one)._ledger
        torch.testing.assert_close(spent.server, torch.full_like(spent.server, expected), rtol=1e-3, atol=0)
        assert stat.S_IMODE((one.folder / "account.gfl").stat().st_mode) == 0o600
    assert not outcome.test
    assert outcome.best.round == 2
    assert all(0 < epsilon < math.inf and not gaps for epsilon, gaps in outcome.spent.values())


def test_the_summary_of_a_protected_run_is_shown_without_metrics(tmp_path: Path) -> None:
    """As the server shows it: read from its file."""
    make_tables(tmp_path)
    outcome = driver(tmp_path, private()).run()
    server = ServerFolder.prepare(tmp_path / "kit", private(), roster(), tmp_path / "edges.csv", EdgeColumns())
    write_outcome(server, outcome)
    record = read_outcome(server)
    assert record is not None
    shown = render(record, server.run)
    assert "best round  2 (no validation loss is known)" in shown
    assert "not known, as no test sample gave a number" in shown
    assert f"ε = {record['epsilon']:.2f} against the server" in shown
    assert "best round 2, metrics are not reported" in status_of(server.path)


def test_statistics_that_left_without_noise_are_named(tmp_path: Path) -> None:
    make_tables(tmp_path)
    outcome = driver(tmp_path, private(1, tables=TablePlan(settings()))).run()
    assert {gaps for _, gaps in outcome.spent.values()} == {(STATISTICS,)}
    assert all(math.isinf(epsilon) for epsilon, _ in outcome.spent.values())


def test_noise_is_never_that_of_the_seed_and_the_same_upload_has_the_same(tmp_path: Path) -> None:
    """Two federations of one plan differ; a site that is asked again, in a process of its own, repeats itself."""
    make_tables(tmp_path)
    heard: list[dict[str, list[bytes]]] = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        make_tables(tmp_path / folder)
        answers: dict[str, list[bytes]] = {}
        at = {name: _listened(one, answers) for name, one in sites(tmp_path / folder, private(1)).items()}
        driver(tmp_path / folder, private(1), transport=LocalTransport(at)).run()
        heard.append(answers)
    assert heard[0]["share north"][0] != heard[1]["share north"][0]
    again: dict[str, list[bytes]] = {}
    at = {name: _listened(one, again) for name, one in sites(tmp_path / "first", private(1)).items()}
    made = driver(tmp_path / "first", private(1), transport=LocalTransport(at))
    made.store.file.unlink()
    made.run()
    assert again["share north"][0] == heard[0]["share north"][0]
    key = list((tmp_path / "first" / "north").glob("noise-*.key"))
    assert len(key) == 1
    assert stat.S_IMODE(key[0].stat().st_mode) == 0o600


def _listened(one: Site, answers: dict[str, list[bytes]]) -> Any:
    def answer(phase: str, blob: bytes) -> bytes:
        reply = one.answer(phase, blob)
        answers.setdefault(f"{phase} {one.clients.site}", []).append(reply)
        return reply

    return answer


def test_a_release_is_written_down_before_it_is_made(tmp_path: Path) -> None:
    """A site that dies between the account and its answer has paid; one that repeats an answer does not pay twice."""
    make_tables(tmp_path)
    at = sites(tmp_path, private(1))
    driver(tmp_path, private(1), at).run()
    paid = account(at["south"])._ledger.server
    fresh = site(tmp_path, private(1), "south")
    fresh._party, graph = at["south"].party, at["south"].party.graph
    fresh._account = SiteAccount(fresh.folder, private(1), fresh.party.model, graph)
    assert torch.equal(account(fresh)._ledger.server, paid)
    upload = [RepresentationUpload(1, torch.ones(2))]
    account(fresh).charge(upload, [0], [])
    once = account(fresh)._ledger.server
    assert bool((once > paid).all())
    later = SiteAccount(fresh.folder, private(1), fresh.party.model, graph)
    later.charge(upload, [0], [])
    assert torch.equal(later._ledger.server, once)
    later.charge([RepresentationUpload(1, torch.zeros(2))], [0], [])
    assert bool((later._ledger.server > once).all())


def test_a_server_that_asks_for_the_same_round_with_other_aggregates_is_charged_for(tmp_path: Path) -> None:
    """It would get another model, so that is another release; the same question gets the same bits, for nothing."""
    make_tables(tmp_path)
    asked: list[tuple[str, bytes]] = []
    one = site(tmp_path, private(1), "south")

    def listen(phase: str, blob: bytes) -> bytes:
        asked.append((phase, blob))
        return one.answer(phase, blob)

    at: Any = {name: made.answer for name, made in sites(tmp_path, private(1)).items()} | {"south": listen}
    made = driver(tmp_path, private(1), transport=LocalTransport(at))
    made.run()
    fresh = site(tmp_path, private(1), "south")
    history = [pair for pair in asked if pair[0] in ("begin", "share", "train")][:3]
    assert [phase for phase, _ in history] == ["begin", "share", "train"]
    paid = account(one)._ledger.server
    for phase, blob in history:
        fresh.answer(phase, blob)
    assert torch.equal(account(fresh)._ledger.server, paid)
    envelope = decode(history[2][1], fresh._rules("train"))
    other = [
        replace(m, C=m.C + torch.tensor([0.0, 3.0])) if isinstance(m, RepresentationAggregate) else m
        for m in envelope.messages
    ]
    fresh.answer("train", encode(replace(envelope, messages=tuple(other))))
    assert bool((account(fresh)._ledger.server > paid).all())


def test_a_site_whose_budget_is_spent_answers_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_tables(tmp_path)
    news: list[RoundNews] = []
    chosen = private(3, guarantee=Guarantee(max_epsilon=9.0), least_sites=1)
    with pytest.raises(TooFewSitesError, match="0 sites answered, and the plan wants 1"):
        driver(tmp_path, chosen, watch=news.append).run()
    assert "max_epsilon must allow one more answer of this site, got 9.0 and it is spent" in caplog.text


def test_dp_sgd_runs_on_poisson_samples_of_the_sites_own(tmp_path: Path) -> None:
    """With a rate of one in six some batches are empty; the noise alone is the step then."""
    make_tables(tmp_path)
    protection = Protection(
        hidden=Gaussian(1.0, 0.5), jacobian=Gaussian(1.0, 1.0), steps=StepNoise(0.5, 1.0), unit="sample"
    )
    tables = TablePlan(type(settings())(task="sc", missing="fill"), **PUBLIC)  # type: ignore[arg-type]
    chosen = plan("sc", 4, encoder=MLP((4,)), local=LocalTraining(0.1, 6, 1), protection=protection, tables=tables)
    made = driver(tmp_path, chosen)
    outcome = made.run()
    assert all(bool(weight.isfinite().all()) for weight in made.weights.values())
    assert all(0 < epsilon < math.inf for epsilon, _ in outcome.spent.values())


def test_a_claim_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(InputError, match="calibrate must be false in a deployment"):
        private(guarantee=Guarantee(max_epsilon=1.0, calibrate=True))
    with pytest.raises(InputError, match="max_epsilon must be left out where nothing is protected"):
        plan(guarantee=Guarantee(max_epsilon=1.0))
    with pytest.raises(InputError, match="protocol must be jacobian where uploads are protected"):
        private(protocol="gram")


def test_a_site_that_cannot_write_its_account_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk is full for a round: nothing is released then, nothing is charged, and afterwards all goes on."""
    make_tables(tmp_path)
    at, news = sites(tmp_path, private(3)), list[RoundNews]()
    write = site_account.write_state

    def full(file: Path, state: Any) -> None:
        if file.parent.name == "west" and len(news) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, state)

    monkeypatch.setattr(site_account, "write_state", full)
    driver(tmp_path, private(3), at, watch=news.append).run()
    assert ["west" in one.missing for one in news] == [False, True, False]
    mu = {"hidden": 2 * 0.5 / 2.0, "jacobian": 2 * 1.0 / 4.0, "update": 2 * 0.5 / 1.0}
    expected = 4 * (mu["hidden"] ** 2 + mu["jacobian"] ** 2) + 2 * mu["update"] ** 2
    spent = account(at["west"])._ledger.server
    torch.testing.assert_close(spent, torch.full_like(spent, expected), rtol=1e-3, atol=0)
