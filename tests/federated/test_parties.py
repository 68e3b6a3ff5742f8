"""Server and clients as separate objects: both protocols take the engine's trajectory, and only messages pass."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields

import pytest
import torch
from graph_builders import random_clients
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import Estimator, LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload, Message, ModelBroadcast
from gfl_lightning.federated.protocol.parties import ClientParty, ServerParty
from gfl_lightning.federated.protocol.traffic import Attendance, Traffic, TrafficMeter, one_direction
from gfl_lightning.federated.report import RoundReport
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model

SMALL = MLP((5,))
EVERYONE = Participation()
SOME = Participation(train=0.5, share=0.4)


def federation(
    task: str, protocol: ProtocolName, participation: Participation, estimator: Estimator = "compensated", seed: int = 0
) -> Federation:
    return Federation(
        random_clients(task, seed=seed),
        SMALL,
        estimator=estimator,
        local=LocalTraining(0.3, 3, 2 if task == "sc" else None),
        protocol=protocol,
        participation=participation,
        seed=2,
    )


def parties(engine: Federation) -> tuple[ServerParty, list[ClientParty]]:
    graph = engine.graph
    A = engine._near.A.dense()
    clients = []
    for k in range(graph.num_clients):
        mine = graph.client == k
        train = mine & graph.mask(Split.TRAIN)
        shared_x, train_x = graph.x[mine & graph.shared], graph.x[train]
        parts = (shared_x, train_x, graph.y[train], float(A[k, k]), engine.estimator == "compensated")
        clients.append(ClientParty(k, engine.encoder, engine.protocol, *parts))
    return ServerParty(A, engine.encoder, engine.start().weights), clients


def play(engine: Federation, rounds: int) -> tuple[Weights, list[list[tuple[str, Message]]]]:
    """Rounds in which every message passes through one list."""
    server, clients = parties(engine)
    log: list[list[tuple[str, Message]]] = []
    lr = engine.local.lr
    for number in range(rounds):
        wire: list[tuple[str, Message]] = []
        sharing, training = engine.schedule.who_shares(number).tolist(), engine.schedule.who_trains(number).tolist()
        model = server.broadcast()
        wire += [("down", model)] * len({*sharing, *training})
        for j in sharing:
            for upload in clients[j].share(model):
                wire.append(("up", upload))
                server.receive(upload)
        updates: list[Message] = []
        for k in training:
            received = server.aggregate(k)
            wire += [("down", message) for message in received]
            updates.append(clients[k].train(model, received, lr, engine.schedule.batches_by_client(number)[k]))
        wire += [("up", update) for update in updates]
        server.average(updates, lr)
        log.append(wire)
    return server.weights, log


def engine_run(engine: Federation, rounds: int) -> tuple[Weights, list[RoundReport]]:
    state, reports = engine.start(), []
    for _ in range(rounds):
        state, report = engine.round(state)
        reports.append(report)
    return state.weights, reports


@pytest.mark.parametrize("participation", [EVERYONE, SOME])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_both_protocols_take_the_engines_trajectory(task: str, participation: Participation) -> None:
    for seed in range(3):
        expected, _ = engine_run(federation(task, "jacobian", participation, seed=seed), 4)
        for protocol in ("jacobian", "gram"):
            found, _ = play(federation(task, protocol, participation, seed=seed), 4)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    v1 = federation(task, "jacobian", participation, "v1")
    torch.testing.assert_close(play(v1, 4)[0], engine_run(v1, 4)[0], rtol=1e-10, atol=1e-12)


def total(wire: list[tuple[str, Message]], direction: str) -> dict[str, int]:
    sizes: defaultdict[str, int] = defaultdict(int)
    for way, message in wire:
        if way == direction:
            sizes[type(message).__name__] += message.nbytes
    return dict(sizes)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("participation", [EVERYONE, SOME])
@pytest.mark.parametrize(
    ("protocol", "estimator"), [("jacobian", "compensated"), ("jacobian", "v1"), ("gram", "compensated")]
)
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_reported_bytes_are_those_of_the_messages(
    task: str, protocol: ProtocolName, estimator: Estimator, participation: Participation, seed: int
) -> None:
    engine = federation(task, protocol, participation, estimator, seed)
    _, reports = engine_run(engine, 4)
    _, log = play(engine, 4)
    for report, wire in zip(reports, log, strict=True):
        for direction, measured in (("up", report.traffic.up), ("down", report.traffic.down)):
            assert {k: v for k, v in measured.items() if v} == total(wire, direction)


def tensors(message: Message) -> list[Tensor]:
    values = [getattr(message, field.name) for field in fields(message)]
    values += [entry for value in values if isinstance(value, dict) for entry in value.values()]
    return [value for value in values if isinstance(value, Tensor)]


@pytest.mark.parametrize("protocol", ["jacobian", "gram"])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_no_message_holds_a_raw_sample_or_a_label(task: str, protocol: ProtocolName) -> None:
    """The one exception is written on the message: the direction of a one-sample client's Jacobian."""
    engine = federation(task, protocol, EVERYONE)
    _, log = play(engine, 3)
    for _, message in (entry for wire in log for entry in wire):
        direction = message.direction if isinstance(message, FactorUpload) else None
        assert direction is None or bool(one_direction(engine.graph)[message.client])  # type: ignore[attr-defined]
        for tensor in tensors(message):
            if tensor is direction:
                continue
            assert tensor.dtype in (torch.float64, torch.bool)
            if tensor.shape[-1:] == (engine.graph.num_features,):
                distance = torch.cdist(tensor.reshape(-1, engine.graph.num_features), engine.graph.x)
                assert float(distance.min()) > 1e-6


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_gram_tells_the_server_nothing_that_the_papers_jacobian_does_not(task: str) -> None:
    """What a factor upload holds is computed here from the Jacobian upload and W̄ alone."""
    weights = federation(task, "jacobian", EVERYONE).start().weights
    uploads: dict[str, list[Message]] = {}
    for protocol in ("jacobian", "gram"):
        _, clients = parties(federation(task, protocol, EVERYONE))
        uploads[protocol] = [client.share(ModelBroadcast(weights))[1] for client in clients]
    for jacobian, factors in zip(uploads["jacobian"], uploads["gram"], strict=True):
        assert isinstance(jacobian, JacobianUpload)
        assert isinstance(factors, FactorUpload)
        U = jacobian.jacobian["W1"][0] / weights["W2"][0][:, None]
        torch.testing.assert_close(jacobian.jacobian["W2"][0, 0], factors.activation)
        if factors.U is not None:
            torch.testing.assert_close(U, factors.U)
        else:
            alive = U.abs().sum(1) > 0
            assert factors.pattern is not None
            assert factors.direction is not None
            assert torch.equal(alive, factors.pattern)
            torch.testing.assert_close(U[alive], factors.direction.expand(int(alive.sum()), -1))


def test_the_server_refuses_what_is_no_upload() -> None:
    server, _ = parties(federation("dnc", "gram", EVERYONE))
    with pytest.raises(
        TypeError, match="message must be an upload of a representation or Jacobian, got ModelBroadcast"
    ):
        server.receive(server.broadcast())


def test_bytes_on_cora_are_those_of_the_design() -> None:
    encoder = SizedEncoder(MLP(), 1433, 7)
    meter = TrafficMeter(Model(encoder, APPNP()), compensated=True, itemsize=4)
    one = Attendance(trained=1, trained_single=1, shared=1, shared_single=1, enrolled=0, reached=1, stale=False)
    jacobian, gram = meter.measure(one, "jacobian"), meter.measure(one, "gram")

    def beside_the_model(traffic: Traffic) -> int:
        return traffic.total_down - traffic.down["ModelBroadcast"]

    assert beside_the_model(jacobian) == pytest.approx(2.6e6, rel=0.02)
    assert beside_the_model(gram) < 1000
    assert jacobian.up["ModelUpload"] == pytest.approx(0.37e6, rel=0.02)
    assert gram.up["FactorModelUpload"] == pytest.approx(2e3, rel=0.1)
    isolated = TrafficMeter(Model(encoder, Identity()), False, 4).measure(one, "jacobian")
    assert set(isolated.up) == {"ModelUpload"}
    assert set(TrafficMeter(Model(encoder, APPNP()), False, 4).measure(one, "jacobian").up) == {
        "ModelUpload",
        "RepresentationUpload",
    }
