"""Sites that are absent, late or wrong, and a server that stops: nothing is lost but at most one round."""

from __future__ import annotations

import copy
import errno
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_builders import SITES, Faulty, driver, make_tables, plan, roster, site, sites

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.asking import TooFewSitesError
from gfl_lightning.deploy.codec import decode, encode
from gfl_lightning.deploy.driver import Driver
from gfl_lightning.deploy.envelope import Envelope
from gfl_lightning.deploy.news import NewsFile, RoundNews
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.site import Site
from gfl_lightning.deploy.transport import LocalTransport, Transport
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protocol.messages import ModelUpload, RepresentationUpload
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.models.encoders.mlp import MLP

Replies = tuple[dict[str, bytes], dict[str, str]]
Absent = Callable[[str, int], bool]


def chosen(rounds: int = 5, **options: Any) -> Plan:
    return plan("sc", rounds, encoder=MLP((6,)), local=LocalTraining(0.3, 3), **options)


def faulty(folder: Path, plan: Plan, news: list[RoundNews] | None = None, **options: Any) -> Driver:
    answers = LocalTransport({name: one.answer for name, one in sites(folder, plan).items()})
    watch = (lambda one: None) if news is None else news.append
    return driver(folder, plan, transport=Faulty(answers, **options), watch=watch)


@pytest.mark.parametrize("protocol", ["jacobian", "gram"])
def test_an_absent_site_stands_with_its_last_upload_and_its_age_is_told(tmp_path: Path, protocol: Any) -> None:
    make_tables(tmp_path)
    news: list[RoundNews] = []
    made = faulty(tmp_path, chosen(protocol=protocol), news, absent=lambda phase, t: phase == "share" and t in (3, 4))
    made.run()
    assert [one.ages["north"] for one in news] == [0, 0, 0, 1, 2]
    assert [set(one.missing) for one in news] == [set(), set(), {"north"}, {"north"}, set()]
    assert [one.trained for one in news] == [6] * 5


def test_a_site_that_does_not_train_is_not_in_the_average(tmp_path: Path) -> None:
    """The average over those that answered, from the models that the sites themselves make."""
    make_tables(tmp_path)
    news: list[RoundNews] = []
    made = faulty(tmp_path, chosen(1), news, absent=lambda phase, t: phase == "train" and t == 0)
    made.run()
    assert news[0].trained == 3
    models = _models_of_the_first_round(tmp_path, ("south", "west"))
    for name, weight in made.weights.items():
        torch.testing.assert_close(weight, torch.stack([one[name] for one in models]).mean(0), rtol=1e-5, atol=1e-7)


def _models_of_the_first_round(folder: Path, names: tuple[str, ...]) -> list[Weights]:
    plan = chosen(1)
    at = sites(folder, plan)
    heard: dict[str, list[Weights]] = {}
    for name, one in at.items():
        party_train = one._train

        def train(envelope: Envelope, name: str = name, inner: Any = party_train) -> Any:
            messages, notes = inner(envelope)
            heard.setdefault(name, [m.weights for m in messages if isinstance(m, ModelUpload)])
            return messages, notes

        one._train = train  # type: ignore[method-assign]
    made = driver(folder, plan, at)
    made.store.file.unlink(missing_ok=True)
    made.run()
    return [model for name in names for model in heard[name]]


WRONG: dict[str, tuple[Callable[[Envelope], Envelope], str]] = {
    "another site's id": (lambda e: replace(e, sender="south"), "sender must be 'north', got 'south'"),
    "a replayed round": (lambda e: replace(e, round=e.round - 1), "round must be"),
    "another site's client": (
        lambda e: replace(e, messages=(replace(e.messages[0], client=1), *e.messages[1:])),  # type: ignore[type-var]
        "must be of clients of its site",
    ),
    "too large": (
        lambda e: replace(e, notes={"padding": "x" * 2**23}),
        "blob must have at most",
    ),
}


@pytest.mark.parametrize("phase", ["share", "train"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_counts_as_none(tmp_path: Path, kind: str, phase: str) -> None:
    """The run is the one in which that site was silent in that phase."""
    make_tables(tmp_path)
    change, sentence = WRONG[kind]
    news: list[RoundNews] = []
    made = faulty(tmp_path, chosen(3), news)
    transport = made.transport
    assert isinstance(transport, Faulty)

    def wrong(current: str, blob: bytes) -> bytes:
        if current != phase or transport.count[phase] != 2:
            return blob
        rules = made.ask.rules("north", phase, made.ask.sums.server.round)  # type: ignore[union-attr]
        return encode(change(decode(blob, rules)))

    transport.wrong = wrong
    made.run()
    assert any(sentence in one.missing.get("north", "") for one in news)
    made.store.file.unlink()
    silent = faulty(tmp_path, chosen(3), absent=lambda current, t: current == phase and t == 2)
    silent.run()
    torch.testing.assert_close(made.weights, silent.weights, rtol=0, atol=0)


def test_numbers_that_are_not_finite_do_not_reach_the_average(tmp_path: Path) -> None:
    """A site that would send them says so itself; one that sends them nevertheless is refused by the codec."""
    make_tables(tmp_path)
    at = sites(tmp_path, chosen(2))
    share = at["north"]._share

    def broken(envelope: Envelope) -> Any:
        messages, notes = share(envelope)
        spoilt = [replace(m, h=m.h * torch.nan) if isinstance(m, RepresentationUpload) else m for m in messages]
        return spoilt, notes

    at["north"]._share = broken  # type: ignore[method-assign]
    news: list[RoundNews] = []
    made = driver(tmp_path, chosen(2), at, watch=news.append)
    made.run()
    assert all(bool(weight.isfinite().all()) for weight in made.weights.values())
    assert "BlobError in phase share" in news[0].missing["north"]


@pytest.mark.parametrize("protocol", ["jacobian", "gram"])
@pytest.mark.parametrize("phase", ["share", "train", "begin", "finish"])
def test_a_server_that_stops_anywhere_goes_on_to_the_same_model(tmp_path: Path, phase: str, protocol: Any) -> None:
    make_tables(tmp_path)
    plan = chosen(4, protocol=protocol)
    whole = driver(tmp_path, plan)
    expected = whole.run()
    last = whole.weights
    whole.store.file.unlink()

    class StoppedError(Exception):
        pass

    class Stopping(Faulty):
        def exchange(self, current: str, blobs: Mapping[str, bytes], timeout: float) -> Any:
            if current == phase and self.count.get(phase, -1) == (2 if phase in ("share", "train") else -1):
                raise StoppedError
            return super().exchange(current, blobs, timeout)

    answers = LocalTransport({name: one.answer for name, one in sites(tmp_path, plan).items()})
    with pytest.raises(StoppedError):
        driver(tmp_path, plan, transport=Stopping(answers)).run()
    again = driver(tmp_path, plan)
    found = again.run()
    torch.testing.assert_close(again.weights, last, rtol=1e-6, atol=1e-7)
    assert found.best.round == expected.best.round
    assert vars(found.test["test"]) == pytest.approx(vars(expected.test["test"]), rel=1e-6)


def test_a_resumed_run_makes_do_with_the_sites_that_are_there(tmp_path: Path) -> None:
    """It equals the run in which that site was absent from the same round on."""
    make_tables(tmp_path)
    long, short = chosen(5), chosen(2)
    first = driver(tmp_path, short)
    first.run()
    kept = copy.deepcopy(first.store.read())
    assert kept is not None
    answers = {name: one.answer for name, one in sites(tmp_path, long).items() if name != "south"}
    news: list[RoundNews] = []
    resumed = driver(tmp_path, long, transport=_Gone(LocalTransport(answers)), watch=news.append)
    resumed.run()
    assert [one.round for one in news] == [3, 4, 5]
    assert all("south" in one.missing for one in news)
    resumed.store.file.unlink()
    absent = faulty(
        tmp_path,
        long,
        site="south",
        absent=lambda phase, t: phase in ("share", "train") and t > (2 if phase == "share" else 1),
    )
    absent.run()
    torch.testing.assert_close(resumed.weights, absent.weights, rtol=1e-5, atol=1e-6)


@dataclass(frozen=True, eq=False)
class _Gone(Transport):
    """Sites of which some do not exist any more."""

    inner: LocalTransport

    def exchange(
        self, phase: str, blobs: Mapping[str, bytes], timeout: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        here = {name: blob for name, blob in blobs.items() if name in self.inner.sites}
        replies, missing = self.inner.exchange(phase, here, timeout)
        return replies, missing | dict.fromkeys(set(blobs) - set(here), "it is not connected")


def test_fewer_sites_than_wanted_stop_the_run_and_leave_it_resumable(tmp_path: Path) -> None:
    make_tables(tmp_path)
    plan = chosen(3, least_sites=3)
    with pytest.raises(TooFewSitesError, match="2 sites answered, and the plan wants 3"):
        faulty(tmp_path, plan, absent=lambda phase, t: phase == "train" and t == 1).run()
    made = driver(tmp_path, plan)
    made.run()
    assert made.ask.sums is not None
    assert made.ask.sums.server.round == 3


@pytest.mark.parametrize("phase", ["columns", "sums", "squares", "begin"])
def test_a_site_that_is_silent_before_training_is_waited_for(tmp_path: Path, phase: str) -> None:
    """The run stops and begins anew; nothing was trained without that site."""
    make_tables(tmp_path)
    with pytest.raises(TooFewSitesError, match="every site must answer before training, got none of:\n  north: it is"):
        faulty(tmp_path, chosen(1), absent=lambda current, t: current == phase).run()
    driver(tmp_path, chosen(1)).run()


def test_a_site_that_cannot_begin_is_refused(tmp_path: Path) -> None:
    make_tables(tmp_path)
    (tmp_path / "north.csv").unlink()
    with pytest.raises(InputError, match="every site must be able to begin, got 1 that cannot:\n  north: Input"):
        driver(tmp_path, chosen(1)).run()


def test_a_server_with_another_plan_is_refused_by_the_site(tmp_path: Path) -> None:
    make_tables(tmp_path)
    ours = {name: one.answer for name, one in sites(tmp_path, chosen(3)).items()}
    with pytest.raises(InputError, match="InputError in phase columns; the site's log says more"):
        driver(tmp_path, chosen(4), transport=LocalTransport(ours)).run()


def test_a_site_refuses_a_round_that_it_has_left_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_tables(tmp_path)
    plan = chosen(2)
    heard: list[bytes] = []
    one: Site = site(tmp_path, plan, "north")

    def listen(phase: str, blob: bytes) -> bytes:
        if phase == "share":
            heard.append(blob)
        return one.answer(phase, blob)

    answers: Any = {name: site(tmp_path, plan, name).answer for name in SITES} | {"north": listen}
    driver(tmp_path, plan, transport=LocalTransport(answers)).run()
    one.answer("share", heard[0])
    assert "round must be at least 3, as this site has been there, got 0" in caplog.text
    assert roster().numbers("north") == [0, 3, 5]


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops at the round that it cannot keep; with room again it goes on to the same model."""
    make_tables(tmp_path)
    plan = chosen(4)
    whole = driver(tmp_path, plan)
    whole.run()
    whole.store.file.unlink()
    write, calls = os.fdopen, []

    def full(descriptor: int, *options: Any, **named: Any) -> Any:
        calls.append(descriptor)
        if len(calls) == 3:
            os.write(descriptor, b"the beginning")
            os.close(descriptor)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, *options, **named)

    monkeypatch.setattr("gfl_lightning.deploy.state_file.os.fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        driver(tmp_path, plan).run()
    kept = driver(tmp_path, plan).store.read()
    assert kept is not None
    assert kept.sums["round"] == 2
    again = driver(tmp_path, plan)
    again.run()
    torch.testing.assert_close(again.weights, whole.weights, rtol=1e-6, atol=1e-7)
    assert not list((tmp_path / "server").glob(".*"))


def test_a_full_disk_at_a_site_costs_that_site_the_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_tables(tmp_path)

    def full(folder: Path, model: Any) -> Path:
        if folder.name == "west":
            raise OSError(errno.ENOSPC, "No space left on device")
        return folder

    monkeypatch.setattr("gfl_lightning.deploy.site.write_site_model", full)
    outcome = driver(tmp_path, chosen(1)).run()
    assert set(outcome.missing) == {"west"}
    assert "No space left" in caplog.text


def test_a_line_that_was_never_finished_does_not_hide_the_next(tmp_path: Path) -> None:
    """As a full disk leaves it."""
    make_tables(tmp_path)
    news = NewsFile(tmp_path / "run")
    driver(tmp_path, chosen(1), watch=news.add).run()
    with news.file.open("a") as stream:
        stream.write('{"round": 2, "rou')
    (tmp_path / "server" / "progress.gfl").unlink()
    driver(tmp_path, chosen(1), watch=news.add).run()
    assert [one["round"] for one in news.read()] == [1, 1]
    assert stat.S_IMODE(news.file.stat().st_mode) == 0o600


def test_the_order_in_which_sites_answer_changes_no_bit(tmp_path: Path) -> None:
    """So a round that is made again asks for what was asked before, and noise that is bound to it is the same."""
    make_tables(tmp_path)

    @dataclass(frozen=True, eq=False)
    class Backwards(Transport):
        inner: LocalTransport

        def exchange(self, phase: str, blobs: Mapping[str, bytes], timeout: float) -> Replies:
            replies, missing = self.inner.exchange(phase, blobs, timeout)
            return dict(reversed(replies.items())), missing

    found = []
    for turn in (lambda inner: inner, Backwards):
        answers = LocalTransport({name: one.answer for name, one in sites(tmp_path, chosen()).items()})
        made = driver(tmp_path, chosen(), transport=turn(answers))
        made.store.file.unlink(missing_ok=True)
        made.run()
        found.append(made.weights)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
