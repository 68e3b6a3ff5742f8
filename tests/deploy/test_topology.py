"""Two servers take the trajectory of one and neither sees both; a server that forgets leaves missing clients out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_builders import driver, make_tables, plan, roster, sites
from flaky import How, flaky_driver
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.driver import Driver
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.news import RoundNews
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import graph_without_data
from gfl_lightning.deploy.second_server import SecondServer
from gfl_lightning.deploy.transport import LocalTransport
from gfl_lightning.deploy.two_servers import SecondServerError
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.client_party import ClientParty
from gfl_lightning.federated.protocol.messages import JacobianUpload, Message, ModelBroadcast, RepresentationUpload
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.mlp import MLP

SMALL = MLP((6,))


def with_second(folder: Path, chosen: Plan, **options: Any) -> tuple[Driver, SecondServer]:
    graph = graph_without_data(roster(), str(folder / "edges.csv"), EdgeColumns())
    second = SecondServer(chosen, roster(), graph, folder / SECOND)
    answers = {name: one.answer for name, one in sites(folder, chosen).items()}
    return driver(folder, chosen, transport=LocalTransport(answers | {SECOND: second.answer}), **options), second


def run(made: Driver) -> dict[str, Tensor]:
    made.store.file.unlink(missing_ok=True)
    made.run()
    return made.weights


CASES: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"participation": Participation(train=0.5, share=0.5)},
    "learnable": {"aggregator": LearnablePolynomial(M=2)},
    "released": {"release": True},
}


@pytest.mark.parametrize("task", ["sc", "dnc"])
@pytest.mark.parametrize("case", CASES)
def test_two_servers_take_the_trajectory_of_one(tmp_path: Path, case: str, task: str) -> None:
    make_tables(tmp_path, task)
    chosen = plan(task, 4, encoder=SMALL, seed=3, local=LocalTraining(0.3, 3), **CASES[case])
    two, _ = with_second(tmp_path, replace(chosen, topology="two_servers"))
    torch.testing.assert_close(run(two), run(driver(tmp_path, chosen)), rtol=1e-5, atol=1e-6)


def test_neither_server_sees_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which uploads each server takes up, and that the first could not open what passes through it."""
    make_tables(tmp_path)
    seen: dict[int, set[str]] = {}
    receive = ServerParty.receive

    def watched(server: ServerParty, message: Message) -> None:
        seen.setdefault(id(server), set()).add(type(message).__name__)
        receive(server, message)

    monkeypatch.setattr(ServerParty, "receive", watched)
    two, second = with_second(tmp_path, plan("sc", 3, encoder=SMALL, topology="two_servers"))
    run(two)
    assert two.ask.sums is not None
    assert second._sums is not None
    assert seen == {id(two.ask.sums.server): {"RepresentationUpload"}, id(second._sums): {"JacobianUpload"}}
    assert not any(weight.any() for weight in second._sums.weights.values()), "no model gets to the second"
    assert not two.ask.sums.server._jacobian.numel()


def test_a_second_server_with_another_identity_gets_nothing(tmp_path: Path) -> None:
    make_tables(tmp_path)
    two, second = with_second(tmp_path, plan("sc", 2, encoder=SMALL, topology="two_servers"))
    for name in roster().sites:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "second.pub").write_bytes(second.identity)
    run(two)
    for name in roster().sites:
        (tmp_path / name / "second.pub").write_bytes(bytes(32))
    with pytest.raises(RuntimeError, match="0 sites answered"):
        run(with_second(tmp_path, two.plan)[0])


def test_a_second_server_that_is_gone_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    make_tables(tmp_path)
    chosen = plan("sc", 2, encoder=SMALL, topology="two_servers")
    with pytest.raises(SecondServerError, match="the second server must answer second_begin of round 0, got: KeyError"):
        run(driver(tmp_path, chosen))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topology": "three"}, "topology must be one of one_server, two_servers, got 'three'"),
        ({"topology": "two_servers", "protocol": "gram"}, "protocol must be jacobian with two servers"),
        ({"topology": "two_servers", "estimator": "v1"}, "topology must be one_server where no Jacobians are shared"),
        ({"topology": "two_servers", "aggregator": Identity()}, "topology must be one_server where no Jacobians"),
        ({"topology": "two_servers", "masking": Masking(on=True)}, "topology must be one_server where sums are masked"),
        ({"release": True, "protocol": "gram"}, "protocol must be jacobian where uploads are released"),
    ],
)
def test_what_excludes_each_other_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        plan("sc", 2, **options)


def zeros_of(message: Message) -> Message:
    """The same upload, holding 0."""
    if isinstance(message, RepresentationUpload):
        return replace(message, h=torch.zeros_like(message.h))
    assert isinstance(message, JacobianUpload)
    return replace(message, jacobian={name: torch.zeros_like(part) for name, part in message.jacobian.items()})


@pytest.mark.parametrize("topology", ["one_server", "two_servers"])
def test_a_forgetting_server_leaves_a_missing_site_out(
    tmp_path: Path, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its clients had shared 0; a server that remembers goes another way."""
    make_tables(tmp_path)
    chosen = plan("sc", 4, encoder=SMALL, seed=3, local=LocalTraining(0.3, 3), metrics=False, topology=topology)
    away = ("share", 2, "west")

    def lost(*which: object) -> How:
        return "answered" if which == away else ""

    def flaky(release: bool) -> dict[str, Tensor]:
        made = replace(chosen, release=release)
        return run(
            flaky_driver(with_second(tmp_path, made)[0] if topology == "two_servers" else driver(tmp_path, made), lost)
        )

    forgetful, mindful = flaky(release=True), flaky(release=False)
    share = ClientParty.share

    def nothing(client: ClientParty, broadcast: ModelBroadcast, t: int = 0) -> list[Message]:
        sent = share(client, broadcast, t)
        absent = t == 2 and roster().clients[client.number] in roster().sites["west"]
        return [zeros_of(message) for message in sent] if absent else sent

    monkeypatch.setattr(ClientParty, "share", nothing)
    expected = run(driver(tmp_path, replace(chosen, topology="one_server")))
    torch.testing.assert_close(forgetful, expected, rtol=1e-5, atol=1e-6)
    assert any(float((mindful[name] - expected[name]).abs().max()) > 1e-4 for name in expected)


def test_nothing_that_was_shared_is_kept_in_memory_or_on_disk(tmp_path: Path) -> None:
    make_tables(tmp_path)
    for release in (True, False):
        made = driver(tmp_path, plan("sc", 2, encoder=SMALL, release=release))
        run(made)
        assert made.ask.sums is not None
        server, kept = made.ask.sums.server, made.store.read()
        assert kept is not None
        assert kept.sums is not None
        assert ("uploads" in kept.sums) is not release
        assert bool(server._h.any() or server._jacobian.numel()) is not release


def test_a_forgetting_run_is_resumed_where_it_was(tmp_path: Path) -> None:
    make_tables(tmp_path)
    chosen = plan("sc", 4, encoder=SMALL, seed=3, release=True)
    whole, stopped = run(driver(tmp_path, chosen)), driver(tmp_path, chosen)
    stopped.watch = stop_after_two
    with pytest.raises(KeyboardInterrupt):
        run(stopped)
    resumed = driver(tmp_path, chosen)
    resumed.run()
    torch.testing.assert_close(resumed.weights, whole, rtol=1e-5, atol=1e-6)


def stop_after_two(news: RoundNews) -> None:
    if news.round > 2:
        raise KeyboardInterrupt
