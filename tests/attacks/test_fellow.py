"""A fellow client's attacks and an outsider's on planted messages, and what they make of other data."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import jacrev

from gfl_lightning.attacks.factorise import factorise
from gfl_lightning.attacks.fellow.distant_edges import DistantEdges
from gfl_lightning.attacks.fellow.neighbour_labels import NeighbourLabels
from gfl_lightning.attacks.fellow.neighbour_records import NeighbourRecords
from gfl_lightning.attacks.fellow.neighbour_words import NeighbourWords
from gfl_lightning.attacks.fellow.received import unknown_aggregates, unknown_units
from gfl_lightning.attacks.knowledge import Clients, OwnPlace, Shadows
from gfl_lightning.attacks.outsider.neighbourhood_class import NeighbourhoodClass
from gfl_lightning.attacks.outsider.shadow_membership import ShadowMembership
from gfl_lightning.attacks.scores import matched
from gfl_lightning.attacks.views import Kinds, Round, View
from gfl_lightning.federated.protocol.messages import (
    FactorAggregate,
    JacobianAggregate,
    ModelUpload,
    RepresentationAggregate,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import SizedEncoder, Weights
from gfl_lightning.models.encoders.mlp import MLP

D, N, NEAR = 120, 60, 3
PSI = SizedEncoder(MLP((64,)), D, 2)
MIXING = torch.tensor([0.1] * NEAR + [0.2 / N] * (N - NEAR))


def words(count: int, seed: int) -> Tensor:
    return (torch.rand(count, D, generator=torch.Generator().manual_seed(seed)) < 0.12).float()


def start(seed: int = 0) -> Weights:
    return PSI.initial_weights(torch.Generator().manual_seed(seed))


def received(x: Tensor, rounds: int = 4) -> View:
    def one(t: int) -> Round:
        W = start(t)
        sent = JacobianAggregate(0, jacrev(lambda w: MIXING @ PSI(w, x))(W))
        return Round(W, (RepresentationAggregate(0, MIXING @ PSI(W, x)), sent))

    return View.of(PSI, [one(t) for t in range(rounds)])


def place(**known: object) -> OwnPlace:
    return OwnPlace(words(30, 77), torch.arange(30) % 2, 2, own_x=words(1, 5), **known)  # type: ignore[arg-type]


def test_words_of_direct_neighbours_are_named() -> None:
    attack, scores, other, blind = NeighbourWords(), [], [], []
    for seed in range(6):
        x = words(N, seed)
        guess = attack.guess(received(x), place())
        scores.append(attack.score(guess, x[:NEAR]))
        other.append(attack.score(guess, words(NEAR, 50 + seed)))
        blind.append(attack.score(attack.blind(place()), x[:NEAR]))
    assert sum(scores) / 6 > 0.9
    assert sum(other) / 6 < 0.55
    assert sum(blind) / 6 < 0.55


@pytest.mark.parametrize(("std", "read"), [(0.3, True), (300.0, False)])
def test_words_behind_noise_are_named_over_rounds_until_there_is_too_much(std: float, read: bool) -> None:
    attack, x, W = NeighbourWords(), words(N, 1), start()
    generator = torch.Generator().manual_seed(0)
    exact = jacrev(lambda w: MIXING @ PSI(w, x))(W)

    def one() -> Round:
        noisy = {name: J + std * torch.randn(J.shape, generator=generator) for name, J in exact.items()}
        return Round(W, (JacobianAggregate(0, noisy),))

    known = place(std={JacobianAggregate: std}, neighbours=MIXING[:NEAR])
    score = attack.score(attack.guess(View.of(PSI, [one() for _ in range(24)]), known), x[:NEAR])
    blind = attack.score(attack.blind(known), x[:NEAR])
    assert score >= 0.8 if read else score <= blind + 0.2
    assert blind < 0.6


def test_single_neighbours_are_told_apart_with_and_without_the_graph() -> None:
    attack = NeighbourRecords()
    for neighbours in (MIXING[:NEAR], torch.empty(0)):
        x = words(N, 2)
        known = place(neighbours=neighbours)
        guess = attack.guess(received(x), known)
        assert attack.score(guess, x[:NEAR]) > 0.9
        assert attack.score(guess, words(NEAR, 60)) < 0.5
        assert attack.score(attack.blind(known), x[:NEAR]) < 0.5


def test_clients_that_are_known_by_name_are_taken_out_exactly() -> None:
    x = words(N, 3)
    named = torch.tensor([0, 1, *range(NEAR, N)])  # all but one neighbour
    known = place(named=Clients.of(list(x[named].split(1))), weights=MIXING[named])
    for one in received(x):
        W1, W2 = one.weights["W1"], one.weights["W2"]
        on = (x[2] @ W1.T > 0).float()
        T = unknown_units(PSI, one, known)
        assert T is not None
        torch.testing.assert_close(T.rows, MIXING[2] * torch.outer(on, x[2]), atol=1e-5, rtol=1e-4)
        left = unknown_aggregates(PSI, one, known)
        torch.testing.assert_close(left, MIXING[2] * W2 @ torch.relu(W1 @ x[2]), atol=1e-5, rtol=1e-4)
    attack = NeighbourWords()
    assert attack.score(attack.guess(received(x), known), x[2:3]) == 1.0


def test_signed_mixtures_factorise() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(3, 40, generator=generator).double()
    S = (torch.rand(200, 3, generator=generator) < 0.5).double()
    assert matched(factorise(S @ X, 3, False, generator, 400), X, words=False) > 0.95


def test_the_gram_protocol_leaves_inner_products_to_decode() -> None:
    """64 sums of activations and as many inner products: far from T_k, but not nothing."""
    x, attack, W = words(N, 1), NeighbourWords(), start()
    z = x @ W["W1"].T
    own = words(1, 5)[0]
    sent = FactorAggregate(0, MIXING @ torch.relu(z), cross=(MIXING * (x @ own)) @ (z > 0).float())
    view = View.of(PSI, [Round(W, (RepresentationAggregate(0, MIXING @ PSI(W, x)), sent))])
    assert attack.applies(view)
    assert not NeighbourRecords().applies(view)
    guess = attack.guess(view, place())
    full = attack.score(attack.guess(received(x), place()), x[:NEAR])
    assert guess.shape == (D,)
    assert attack.score(guess, x[:NEAR]) <= full


def test_labels_of_neighbours_follow_the_aggregate_and_not_the_own_label() -> None:
    attack, psi = NeighbourLabels(), SizedEncoder(MLP(()), 2, 2)
    sent = RepresentationAggregate(0, torch.tensor([-2.0, 2.0]))
    view = View.of(psi, [Round({"W1": torch.eye(2)}, (sent,))], own=0.5)
    known = OwnPlace(3 * torch.eye(2).repeat(4, 1), torch.arange(8) % 2, 2, own_label=0)
    truth = torch.tensor([0.0, 1.0])
    assert attack.score(attack.guess(view, known), truth) > 0.9
    assert attack.score(attack.blind(known), truth) == 0.25  # half for the own label, half as the public is


def many(clients: int, seed: int, each: int = 6) -> list[Tensor]:
    """Clients with several samples."""
    return list(words(clients * each, seed).split(each))


def received_of(groups: list[Tensor], mixing: Tensor, rounds: int = 4) -> View:
    """What a client receives of others who send the means over their samples."""

    def h(w: Weights) -> Tensor:
        return mixing @ torch.stack([PSI(w, one).mean(0) for one in groups])

    return View.of(
        PSI,
        [
            Round(W, (RepresentationAggregate(0, h(W)), JacobianAggregate(0, jacrev(h)(W))))
            for W in (start(t) for t in range(rounds))
        ],
    )


def test_several_samples_of_clients_that_are_known_by_name_are_taken_out_and_found_exactly() -> None:
    groups = many(20, 4)
    mixing = torch.tensor([0.1] * NEAR + [0.01] * (20 - NEAR))
    view = received_of(groups, mixing)
    known = place(named=Clients.of(groups[1:]), weights=mixing[1:])
    for one in view:
        W1, W2 = one.weights["W1"], one.weights["W2"]
        z = groups[0] @ W1.T
        T = unknown_units(PSI, one, known)
        assert T is not None
        torch.testing.assert_close(T.rows, mixing[0] * (z > 0).float().T @ groups[0] / 6, atol=1e-5, rtol=1e-4)
        left = unknown_aggregates(PSI, one, known)
        torch.testing.assert_close(left, mixing[0] * W2 @ torch.relu(z).mean(0), atol=1e-5, rtol=1e-4)
    attack, asked = DistantEdges(), Clients.of(groups[:12])
    truth = torch.arange(12) < NEAR
    assert attack.score(attack.guess(view, place(candidates=asked)), truth) == 1.0
    elsewhere = [attack.guess(received_of(many(20, seed), mixing), place(candidates=asked)) for seed in range(30, 34)]
    assert 0.2 < sum(attack.score(guess, truth) for guess in elsewhere) / 4 < 0.8


def test_behind_noise_alone_a_fellow_client_is_left_with_what_it_would_guess() -> None:
    x, generator, std = words(N, 6), torch.Generator().manual_seed(0), 1e4

    def blurred(one: Round) -> Round:
        sent, h = one.find(JacobianAggregate), one.find(RepresentationAggregate)
        assert sent is not None
        assert h is not None
        noisy = {name: J + std * torch.randn(J.shape, generator=generator) for name, J in sent.grad_C.items()}
        C = h.C + std * torch.randn(h.C.shape, generator=generator)
        return Round(one.weights, (RepresentationAggregate(0, C), JacobianAggregate(0, noisy)))

    view = View.of(PSI, [blurred(one) for one in received(x)])
    asked = Clients.of(list(torch.cat([x[:NEAR], words(20, 9)]).split(1)))
    law = {RepresentationAggregate: std, JacobianAggregate: std}
    known = place(std=law, candidates=asked, neighbours=MIXING[:NEAR])
    alone = replace(known, public_x=known.own_x, public_y=known.public_y[:1])
    truth = torch.arange(len(asked)) < NEAR
    edges, labels, words_of = DistantEdges(), NeighbourLabels(), NeighbourWords()
    assert torch.equal(NeighbourRecords().guess(view, known), NeighbourRecords().blind(known))
    assert abs(edges.score(edges.guess(view, known), truth) - edges.score(edges.blind(known), truth)) < 0.1
    torch.testing.assert_close(labels.guess(view, known), labels.blind(known), atol=0.1, rtol=0)
    for knows in (known, alone):
        left, right = words_of.guess(view, knows), words_of.blind(knows)
        assert words_of.score(left, x[:NEAR]) >= words_of.score(right, x[:NEAR]) - 0.11


def test_who_is_near_shows_in_what_is_received() -> None:
    attack, scores, other = DistantEdges(), [], []
    for seed in range(4):
        x = words(N, seed)
        asked = torch.cat([x[:NEAR], x[30:40]])
        truth = torch.arange(len(asked)) < NEAR
        known = place(candidates=Clients.of(list(asked.split(1))))
        scores.append(attack.score(attack.guess(received(x), known), truth))
        other.append(attack.score(attack.guess(received(words(N, 80 + seed)), known), truth))
    assert sum(scores) / 4 > 0.95
    assert 0.2 < sum(other) / 4 < 0.8


def test_shadows_tell_a_member_and_only_with_both_kinds() -> None:
    psi, x = SizedEncoder(MLP(()), 2, 2), torch.tensor([1.0, 0.0])

    def model(sure: float) -> Weights:
        return {"W1": torch.tensor([[sure, 0.0], [0.0, 0.0]])}

    def known(*sure: float) -> Shadows:
        member = tuple(value > 2 for value in sure)
        models = tuple(model(value) for value in sure)
        return Shadows(torch.eye(2), torch.arange(2), 2, record=x, label=0, models=models, member=member)

    attack = ShadowMembership()
    for sure, answer in ((3.0, 1), (1.0, 0)):
        assert int(attack.guess(View.of(psi, [Round(model(sure))]), known(3.1, 2.9, 1.1, 0.9))) == answer
    assert int(attack.guess(View.of(psi, [Round(model(1.0))]), known(3.1, 2.9))) == int(attack.blind(known(3.1)))


def test_more_shadows_of_one_kind_do_not_draw_the_answer_to_it() -> None:
    """The mean of eight is nearer to anything than that of two: 0.4 of the answers were yes."""
    psi, x, attack = SizedEncoder(MLP(()), 2, 2), torch.tensor([1.0, 0.0]), ShadowMembership()
    draws = torch.randn(600, 11, generator=torch.Generator().manual_seed(0))
    said = []
    for own, *others in draws.tolist():
        models = tuple({"W1": torch.tensor([[one, 0.0], [0.0, 0.0]])} for one in others)
        member = (True,) * 2 + (False,) * 8
        known = Shadows(torch.eye(2), torch.arange(2), 2, record=x, label=0, models=models, member=member)
        view = View.of(psi, [Round({"W1": torch.tensor([[own, 0.0], [0.0, 0.0]])})])
        said.append(int(attack.guess(view, known)))
    assert abs(sum(said) / 600 - 0.5) < 0.06


def test_the_class_of_a_neighbourhood_is_the_models_answer() -> None:
    psi, attack = SizedEncoder(MLP(()), 2, 2), NeighbourhoodClass()
    x, y = torch.tensor([[1.0, 0], [1.1, 0], [0.9, -0.2], [1.0, 0.3]]), torch.tensor([0, 0, 0, 1])
    known = OwnPlace(x.repeat(3, 1), y.repeat(3), 2, own_x=torch.tensor([[1.0, 0.1]]))
    for weight, answer in ((20.0, 1), (-20.0, 0)):  # the second contradicts public labels and is not believed
        view = View.of(psi, [Round({"W1": torch.tensor([[0.0, 0.0], [0.0, weight]])})])
        assert int(attack.guess(view, known)) == answer
    assert int(attack.blind(known)) == 0


def test_a_view_that_is_held_makes_each_round_once() -> None:
    made = []

    def make(kinds: Kinds) -> Round:
        made.append(1)
        return Round(start(), (RepresentationUpload(0, torch.zeros(2)),)).only(kinds)

    view = View(PSI, (make,) * 3).held()
    for kinds in ((RepresentationUpload,), (ModelUpload,), (RepresentationUpload, ModelUpload)):
        assert view.only(*kinds).kinds() == {RepresentationUpload} & set(kinds)
        list(view.only(*kinds))
    assert len(made) == 3


def test_a_view_shows_only_what_reaches_the_adversary() -> None:
    upload, model = RepresentationUpload(0, torch.zeros(2)), ModelUpload(0, start())
    view = View.of(PSI, [Round(start(), (upload, model))] * 3)
    assert view.kinds() == {RepresentationUpload, ModelUpload}
    assert view.only(ModelUpload).kinds() == {ModelUpload}
    assert view.only(ModelUpload).only(RepresentationUpload).kinds() == set()
    assert len(view.first(1)) == 1
    assert not NeighbourWords().applies(view)
