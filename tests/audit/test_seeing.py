"""The messages in views are those that server and client parties exchange."""

from __future__ import annotations

import pytest
import torch
from federated.test_parties import parties
from graph_builders import random_clients

from gfl_lightning.audit.by_fellows import shortened
from gfl_lightning.audit.recording import kept_rounds, record
from gfl_lightning.audit.seeing import Seeing
from gfl_lightning.audit.sights import FirstServer, Forgetful, SecondServer
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    Message,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection


def assert_same(found: Message, expected: Message) -> None:
    assert type(found) is type(expected)
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("encoder", [MLP((5,)), MLP((5,), activation="tanh")], ids=repr)
@pytest.mark.parametrize("estimator", ["compensated", "v1"])
@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_views_hold_what_the_parties_exchange(task: str, estimator: str, encoder: MLP) -> None:
    local = LocalTraining(0.3, 3, 2 if task == "sc" else None)
    engine = Federation(random_clients(task), encoder, estimator=estimator, local=local, seed=2)  # type: ignore[arg-type]
    _compare(engine, rounds=2)


@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_views_of_the_gram_protocol_hold_what_its_parties_exchange(task: str) -> None:
    local = LocalTraining(0.3, 3, 2 if task == "sc" else None)
    _compare(Federation(random_clients(task), MLP((5,)), local=local, protocol="gram", seed=2), rounds=2)


@pytest.mark.parametrize("task", ["dnc", "sc"])
def test_factors_of_a_linear_encoder_are_shown_as_the_jacobians_that_they_are(task: str) -> None:
    made = [
        Seeing(record(Federation(random_clients(task), Linear(), protocol=protocol, seed=2), 1, kept={0}))
        for protocol in ("jacobian", "gram")
    ]
    k = int(made[0].federation.graph.training_clients[0])
    for looks in (Seeing.server, Seeing.fellow):
        one, other = (next(iter(looks(seeing, k))) for seeing in made)
        assert len(one.messages) == len(other.messages) > 1
        for message, same in zip(one.messages, other.messages, strict=True):
            assert_same(message, same)


@pytest.mark.parametrize("unit", ["client", "sample"])
def test_bounded_uploads_are_those_of_the_parties(unit: str) -> None:
    bounds = Protection(Gaussian(clip=0.05), Gaussian(clip=0.2), Gaussian(clip=0.01), unit=unit)  # type: ignore[arg-type]
    engine = Federation(random_clients("sc"), MLP((5,)), local=LocalTraining(0.3, 2), protection=bounds, seed=2)
    _compare(engine, rounds=1)


def _compare(engine: Federation, rounds: int) -> None:
    """Play the protocol with parties and look at the same rounds through views."""
    seeing = Seeing(record(engine, rounds, kept=set(range(rounds))), updates=rounds)
    server, clients = parties(engine)
    for t in range(rounds):
        model = server.broadcast()
        for j, client in enumerate(clients):
            uploads = client.share(model, t)
            for upload in uploads:
                server.receive(upload)
            seen = list(seeing.server(j))[t]
            for upload in uploads:
                found = seen.find(type(upload))
                assert found is not None
                if not (isinstance(upload, FactorUpload) and engine.protocol == "gram" and t):
                    assert_same(found, upload)
        updates: list[Message] = []
        for k in engine.graph.training_clients.tolist():
            received = server.aggregate(k)
            fellow, told = list(seeing.fellow(k))[t], list(seeing.server(k))[t]
            for message in received:
                found = fellow.find(type(message))
                assert found is not None
                assert_same(found, message)
            batches = engine.schedule.batches_by_client(t)[k]
            sent = clients[k].train(model, received, engine.local.lr, batches, t)
            updates += sent
            upload = told.find(ModelUpload)
            assert upload is not None
            if engine.protocol == "jacobian":
                assert_same(upload, sent[0])
                assert (told.find(JacobianAggregate) is None) == (engine.estimator == "v1")
        server.average(updates, engine.local.lr)


def test_what_the_server_sent_under_noise_is_what_the_model_was_trained_with() -> None:
    """With one step, W_k − W̄ is −η(Ã_kk J + ∇C_k)ᵀ r with the very ∇C_k in view."""
    noise = Protection(hidden=Gaussian(0.5), jacobian=Gaussian(0.5))
    engine = Federation(random_clients("dnc"), MLP((5,)), local=LocalTraining(0.1, 1), protection=noise, seed=3)
    seeing = Seeing(record(engine, 1))
    for k in engine.graph.training_clients.tolist():
        view = seeing.server(k)
        (one,) = view
        C, sent, model = one.find(RepresentationAggregate), one.find(JacobianAggregate), one.find(ModelUpload)
        assert C is not None
        assert sent is not None
        assert model is not None
        x, y = engine.graph.x[k], int(engine.graph.y[k])
        W1, W2 = one.weights["W1"], one.weights["W2"]
        z = W1 @ x
        r = torch.softmax(view.own * (W2 @ torch.relu(z)) + C.C, -1)
        r[y] -= 1
        own = torch.outer(view.own * (z > 0) * (W2.T @ r), x)
        expected = W1 - 0.1 * (own + torch.tensordot(r, sent.grad_C["W1"], 1))
        torch.testing.assert_close(model.weights["W1"], expected, rtol=1e-6, atol=1e-8)


def test_noise_on_uploads_has_the_law_in_force_and_is_new_in_every_round() -> None:
    noise = Protection(hidden=Gaussian(2.0), jacobian=Gaussian(3.0))
    engine = Federation(random_clients("dnc"), MLP((5,)), local=LocalTraining(0.1, 1), protection=noise)
    seeing = Seeing(record(engine, 40, kept=set(range(40))))
    exact = seeing.program.silent
    source, hidden, jacobian = NoiseKey.of_seed(0).source("none"), [], []
    for one in seeing.server(7):
        h, J = exact.uploads(one.weights, seeing.records(7), 7, source)
        seen_h, seen_J = one.find(RepresentationUpload), one.find(JacobianUpload)
        assert seen_h is not None
        assert seen_J is not None
        hidden.append(seen_h.h - h.h)  # type: ignore[attr-defined]
        jacobian.append(seen_J.jacobian["W1"] - J.jacobian["W1"])  # type: ignore[attr-defined]
    assert float(torch.cat(hidden).std()) == pytest.approx(2.0, rel=0.2)
    assert float(torch.stack(jacobian).std()) == pytest.approx(3.0, rel=0.05)
    assert not torch.equal(jacobian[0], jacobian[1])


def test_who_does_not_take_part_sends_nothing() -> None:
    some = Participation(train=0.5, share=0.4)
    engine = Federation(random_clients("dnc"), MLP((5,)), local=LocalTraining(0.1, 1), participation=some)
    seeing = Seeing(record(engine, 6, kept=set(range(6))), updates=6)
    for t in range(6):
        sharing, training = engine.schedule.who_shares(t).tolist(), engine.schedule.who_trains(t).tolist()
        for j in range(10):
            kinds = {type(message) for message in list(seeing.server(j))[t].messages}
            assert (JacobianUpload in kinds) == (j in sharing)
            assert (ModelUpload in kinds) == (j in training)
            assert bool(list(seeing.fellow(j))[t].messages) == (j in training)


def test_two_servers_and_one_that_forgets_see_less() -> None:
    engine = Federation(random_clients("dnc"), MLP((5,)), local=LocalTraining(0.1, 1))
    view = Seeing(record(engine, 3)).server(0)
    first, second = FirstServer()(view).kinds(), SecondServer()(view).kinds()
    assert first == {RepresentationUpload, RepresentationAggregate, ModelUpload}
    assert second == {JacobianUpload}
    assert len(Forgetful()(view)) == 1
    assert FactorAggregate not in view.kinds()


def test_kept_rounds_begin_at_the_first_and_end_at_the_last() -> None:
    for rounds in (1, 2, 50, 400):
        kept = kept_rounds(rounds)
        assert {0, rounds - 1} <= kept <= set(range(rounds))


@pytest.mark.parametrize(("rounds", "kept"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 3]), (9, [0, 1, 8])])
def test_a_shortened_view_has_the_first_rounds_and_the_last_each_once(rounds: int, kept: list[int]) -> None:
    """A round that stood in it twice would pass for two draws of noise."""
    engine = Federation(random_clients("dnc"), MLP((3,)), local=LocalTraining(0.3, 1), seed=2)
    view = Seeing(record(engine, rounds, kept=set(range(rounds)))).fellow(0)
    assert shortened(view, 3).rounds == tuple(view.rounds[t] for t in kept)
