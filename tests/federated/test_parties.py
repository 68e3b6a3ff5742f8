"""Server and clients as separate objects: both protocols take the engine's trajectory, and only messages pass."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from graph_builders import random_clients, with_numbers
from torch import Tensor

from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import Estimator, LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.choice import ProtocolName
from gfl_lightning.federated.protocol.client_party import ClientParty, OwnSamples
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelBroadcast,
    ModelUpload,
    RepresentationAggregate,
)
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.federated.protocol.traffic import Attendance, Traffic, TrafficMeter, one_direction
from gfl_lightning.federated.report import RoundReport
from gfl_lightning.federated.server.fed_adam import FedAdam
from gfl_lightning.federated.server.momentum import Momentum
from gfl_lightning.graphs.client_graph import Split
from gfl_lightning.graphs.losses.poisson import Poisson
from gfl_lightning.graphs.records.shared_labels import SharedLabels
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder, Weights
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.models.model import Model
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

SMALL = MLP((5,))
EVERYONE = Participation()
SOME = Participation(train=0.5, share=0.4)


def federation(
    task: str,
    protocol: ProtocolName,
    participation: Participation,
    estimator: Estimator = "compensated",
    seed: int = 0,
    local: LocalTraining | None = None,
    **parts: Any,
) -> Federation:
    return Federation(
        parts.pop("graph", random_clients(task, seed=seed)),
        parts.pop("encoder", SMALL),
        estimator=estimator,
        local=local or LocalTraining(0.3, 3, 2 if task == "sc" else None),
        protocol=protocol,
        participation=participation,
        seed=2,
        noise_key=NoiseKey.of_seed(2),
        **parts,
    )


def parties(engine: Federation) -> tuple[ServerParty, list[ClientParty]]:
    graph, training = engine.graph, engine.schedule.training
    votes = engine.votes.new_zeros(graph.num_clients)
    votes[training.clients] = engine.votes
    server = ServerParty(engine.propagation, engine.model, engine.start().weights, votes, engine.server)
    clients = []
    for k in range(graph.num_clients):
        mine = graph.client == k
        train = mine & graph.mask(Split.TRAIN)
        rows = (graph.x[mine & graph.shared], graph.x[train], graph.y[train], graph.weight[train])
        samples = OwnSamples(*rows, graph.loss)
        options = (engine.local, engine.protocol, engine.estimator == "compensated", engine.protection)
        clients.append(ClientParty(k, engine.model, samples, server.own[k], *options))
    return server, clients


def play(engine: Federation, rounds: int) -> tuple[Weights, list[list[tuple[str, Message]]]]:
    """Rounds in which every message passes through one list."""
    server, clients = parties(engine)
    log: list[list[tuple[str, Message]]] = []
    lr = engine.local.lr
    for number in range(rounds):
        wire: list[tuple[str, Message]] = []
        sharing, training = engine.schedule.who_shares(number).tolist(), engine.schedule.who_trains(number).tolist()
        model = server.broadcast()
        reached = {*training} if engine.aggregator.isolates else {*sharing, *training}
        wire += [("down", model)] * len(reached)
        for j in sharing:
            for upload in clients[j].share(model, number):
                wire.append(("up", upload))
                server.receive(upload)
        updates: list[Message] = []
        for k in training:
            received = server.aggregate(k)
            wire += [("down", message) for message in received]
            batches = engine.schedule.batches_by_client(number)[k]
            updates += clients[k].train(model, received, lr, batches, number)
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


@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_parties_whose_labels_are_numbers_take_the_engines_trajectory(task: str) -> None:
    graph = with_numbers(random_clients(task), Poisson())
    expected, _ = engine_run(federation(task, "jacobian", EVERYONE, graph=graph), 3)
    for protocol in ("jacobian", "gram"):
        found, _ = play(federation(task, protocol, EVERYONE, graph=graph), 3)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


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


VARIANTS: dict[str, dict[str, Any]] = {
    "learnable": {"aggregator": LearnablePolynomial(M=3)},
    "sgc": {"aggregator": SGC(k=2)},
    "fedavg": {"aggregator": Identity()},
    "deep": {"encoder": MLP((4, 3), "tanh", bias=True)},
    "momentum": {"local": LocalTraining(0.2, 3, momentum=0.5, weight_decay=0.1, proximal=0.3)},
    "by samples": {"weighting": "samples"},
    "server momentum": {"server": Momentum(0.7, 0.5)},
    "adaptive server": {"server": FedAdam(0.05)},
    "learnable, adaptive, momentum": {
        "aggregator": LearnablePolynomial(M=2),
        "server": FedAdam(0.05),
        "local": LocalTraining(0.2, 3, 2, momentum=0.5),
    },
}


@pytest.mark.parametrize("participation", [EVERYONE, SOME])
@pytest.mark.parametrize("variant", VARIANTS)
def test_parties_carry_what_the_engine_carries(variant: str, participation: Participation) -> None:
    engine = federation("sc", "jacobian", participation, **VARIANTS[variant])
    torch.testing.assert_close(play(engine, 3)[0], engine_run(engine, 3)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("task", ["dnc", "snc"])
@pytest.mark.parametrize("variant", ["sgc", "by samples", "adaptive server"])
def test_the_gram_protocol_carries_the_same_where_it_may(variant: str, task: str) -> None:
    engine = federation(task, "gram", SOME, **VARIANTS[variant])
    torch.testing.assert_close(play(engine, 3)[0], engine_run(engine, 3)[0], rtol=1e-9, atol=1e-11)


LINEAR = {
    "plain": LocalTraining(0.3, 3),
    "batches, momentum, decay": LocalTraining(0.2, 3, 2, momentum=0.5, weight_decay=0.1, proximal=0.3),
}


@pytest.mark.parametrize("participation", [EVERYONE, SOME])
@pytest.mark.parametrize("local", LINEAR)
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_the_gram_protocol_carries_a_linear_encoder(task: str, local: str, participation: Participation) -> None:
    """Against every client's whole Jacobian, by messages and by the general path; with labels as shared rows too."""
    shared = SharedLabels().of(random_clients(task), np.random.default_rng(0))
    heard = SharedLabels().heard(shared, APPNP().gamma)
    for graph, encoder in ((random_clients(task), Linear()), (heard, MLP(()))):
        options = {"graph": graph, "encoder": encoder, "local": LINEAR[local]}
        engine = federation(task, "gram", participation, **options)
        slow = federation(task, "jacobian", participation, path="general", **options)
        expected, _ = engine_run(slow, 4)
        for found in (play(engine, 4)[0], play(slow, 4)[0], engine_run(engine, 4)[0]):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("participation", [EVERYONE, SOME])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_a_linear_encoders_factors_are_its_jacobians_in_fewer_numbers(task: str, participation: Participation) -> None:
    logs = {}
    for protocol in ("jacobian", "gram"):
        engine = federation(task, protocol, participation, encoder=Linear())  # type: ignore[arg-type]
        _, reports = engine_run(engine, 3)
        _, logs[protocol] = play(engine, 3)
        for report, wire in zip(reports, logs[protocol], strict=True):
            for direction, measured in (("up", report.traffic.up), ("down", report.traffic.down)):
                assert {k: v for k, v in measured.items() if v} == total(wire, direction)
    seen = 0
    for whole, short in zip(logs["jacobian"], logs["gram"], strict=True):
        for (_, one), (_, other) in zip(whole, short, strict=True):
            if isinstance(one, JacobianUpload | JacobianAggregate):
                assert isinstance(other, FactorUpload | FactorAggregate)
                (J,) = (one.jacobian if isinstance(one, JacobianUpload) else one.grad_C).values()
                (factor,) = tensors(other)
                torch.testing.assert_close(torch.eye(len(J), dtype=J.dtype)[:, :, None] * factor, J)
                assert one.nbytes == len(J) ** 2 * other.nbytes
                seen += 1
    assert seen > 0


@pytest.mark.parametrize("protocol", ["jacobian", "gram"])
def test_weights_of_losses_enter_the_clients_steps(protocol: ProtocolName) -> None:
    for task in ("dnc", "sc"):
        engine = federation(task, protocol, EVERYONE)
        weight = 0.5 + torch.rand(engine.graph.num_samples, generator=torch.Generator().manual_seed(1)).double()
        options = {"encoder": SMALL, "local": engine.local, "protocol": protocol, "seed": 2}
        weighted = Federation(replace(engine.graph, weight=weight), **options)
        torch.testing.assert_close(play(weighted, 3)[0], engine_run(weighted, 3)[0], rtol=1e-9, atol=1e-11)


BOUNDS = {
    "client": Protection(Gaussian(clip=0.05), Gaussian(clip=0.3), Gaussian(clip=0.01)),
    "sample": Protection(Gaussian(clip=0.05), Gaussian(clip=0.3), Gaussian(clip=0.01), unit="sample"),
    "steps": Protection(hidden=Gaussian(clip=0.05), steps=StepNoise(clip=0.02), unit="sample"),
}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_bounds_without_noise_are_the_engines(task: str, bounds: str) -> None:
    engine = federation(task, "jacobian", EVERYONE, protection=BOUNDS[bounds])
    free = federation(task, "jacobian", EVERYONE)
    expected = engine_run(engine, 3)[0]
    torch.testing.assert_close(play(engine, 3)[0], expected, rtol=1e-9, atol=1e-11)
    assert not torch.allclose(expected["W1"], engine_run(free, 3)[0]["W1"])


def test_noise_of_every_release_is_bound_to_what_it_hides() -> None:
    """Asked again for the same upload a client sends the same; in another round, or at another W̄, other noise."""
    noisy = Protection(Gaussian(0.1, 1.0), Gaussian(0.1, 1.0), Gaussian(0.1, 1.0), StepNoise(0.1, 1.0))
    _, clients = parties(federation("dnc", "jacobian", EVERYONE, protection=noisy))
    server, plain = parties(federation("dnc", "jacobian", EVERYONE))
    k, model = int(server.training[0]), server.broadcast()
    for upload in plain[k].share(model):
        server.receive(upload)

    def uploads(t: int, weights: Weights) -> list[Message]:
        at = ModelBroadcast(weights)
        return [
            *clients[k].share(at, t),
            *clients[k].train(at, server.aggregate(k), 0.3, [torch.arange(1)] * 2, t),
        ]

    W = model.weights
    first, again, later = uploads(0, W), uploads(0, W), uploads(1, W)
    moved = uploads(0, {name: weight + 2**-40 for name, weight in W.items()})
    for one, same, *others in zip(first, again, later, moved, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(same), strict=True))
        for other in others:
            assert all(not torch.allclose(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


def test_an_update_that_is_not_finite_is_left_out_or_counts_as_none() -> None:
    server, clients = parties(federation("dnc", "jacobian", EVERYONE))
    k, model = int(server.training[0]), server.broadcast()
    broken = [RepresentationAggregate(k, torch.full((3,), math.nan).double())]
    assert clients[k].train(model, broken, 0.3, [torch.arange(1)]) == []
    clients[k].protection = Protection(update=Gaussian(clip=1.0))
    (upload,) = clients[k].train(model, broken, 0.3, [torch.arange(1)])
    assert isinstance(upload, ModelUpload)
    torch.testing.assert_close(upload.weights, model.weights)
    with pytest.raises(DivergedError, match=r"lr must be small enough for finite updates, got 0\.3"):
        server.average([ModelUpload(k, {name: W * math.nan for name, W in model.weights.items()})], 0.3)


@pytest.mark.parametrize("encoder", [SMALL, Linear()], ids=str)
@pytest.mark.parametrize("protocol", ["jacobian", "gram"])
def test_a_server_goes_on_from_its_saved_state(protocol: ProtocolName, encoder: Encoder) -> None:
    engine = federation("sc", protocol, SOME, server=Momentum(), encoder=encoder)
    server, clients = parties(engine)

    def make_round(server: ServerParty) -> None:
        t, model, updates = server.round, server.broadcast(), []
        for j in engine.schedule.who_shares(t).tolist():
            for upload in clients[j].share(model):
                server.receive(upload)
        for k in engine.schedule.who_trains(t).tolist():
            updates += clients[k].train(model, server.aggregate(k), 0.3, engine.schedule.batches_by_client(t)[k])
        server.average(updates, 0.3)

    for _ in range(2):
        make_round(server)
    after, _ = parties(engine)
    after.load(copy.deepcopy(server.state()))
    for one in (server, after):
        for _ in range(2):
            make_round(one)
    torch.testing.assert_close(after.weights, server.weights, rtol=0, atol=0)


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


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("aggregator", [APPNP(), LearnablePolynomial(M=2)])
@pytest.mark.parametrize("local", [LocalTraining(0.1, 5), LocalTraining(0.1, 5, momentum=0.5, weight_decay=0.1)])
def test_factors_train_as_the_jacobian_that_they_stand_for(
    samples: int, aggregator: APPNP | LearnablePolynomial, local: LocalTraining
) -> None:
    """Σ_j Ã_kj (a_j, U_j) instead of Σ_j Ã_kj ∇ĥ_j, of every hop: the same W_k, also where only W1 x is formed."""
    generator = torch.Generator().manual_seed(samples)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    model = Model(SizedEncoder(SMALL, 3, 2), aggregator)
    W = {name: normal(*weight.shape) for name, weight in model.initial_weights(generator).items()}
    x, hops = normal(samples, 3), aggregator.hops
    own = OwnSamples(x, x, torch.arange(samples) % 2, torch.ones(samples, dtype=torch.float64))
    client = ClientParty(0, model, own, normal(hops).abs(), local)
    A, T, C = normal(hops, 5), normal(hops, 5, 3), normal(hops, 2)
    of_W1 = torch.einsum("om,lmd->lomd", W["W2"], T)
    of_W2 = torch.einsum("op,lm->lopm", torch.eye(2, dtype=torch.float64), A)
    if not aggregator.learnable:
        A, T, C, of_W1, of_W2 = A[0], T[0], C[0], of_W1[0], of_W2[0]
    made = [
        client.train(ModelBroadcast(W), [RepresentationAggregate(0, C), sent], 0.1, [torch.arange(samples)] * 5)[0]
        for sent in (FactorAggregate(0, A, T=T), JacobianAggregate(0, {"W1": of_W1, "W2": of_W2}))
    ]
    assert all(isinstance(one, ModelUpload) for one in made)
    torch.testing.assert_close(made[0].weights, made[1].weights, rtol=1e-9, atol=1e-10)  # type: ignore[attr-defined]
