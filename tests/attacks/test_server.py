"""The server's attacks on planted messages: right where theory says so, at chance on messages of other data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from torch import Tensor
from torch.func import grad, jacrev
from torch.nn import functional as F

from gfl_lightning.attacks.knowledge import Knowledge, TwoWorlds
from gfl_lightning.attacks.scores import cosine
from gfl_lightning.attacks.server.class_shares import ClassShares
from gfl_lightning.attacks.server.decoded_sample import DecodedSample
from gfl_lightning.attacks.server.factorised_samples import FactorisedSamples
from gfl_lightning.attacks.server.flipped_units import FlippedUnits
from gfl_lightning.attacks.server.matched_gradient import MatchedGradient
from gfl_lightning.attacks.server.rank_one import RankOne
from gfl_lightning.attacks.server.update_label import UpdateLabel
from gfl_lightning.attacks.server.update_sample import UpdateSample
from gfl_lightning.attacks.server.which_world import WhichWorld
from gfl_lightning.attacks.views import Round, View
from gfl_lightning.federated.protocol.messages import (
    FactorUpload,
    JacobianAggregate,
    JacobianUpload,
    ModelUpload,
    RepresentationUpload,
)
from gfl_lightning.models.encoders.encoder import Encoder, SizedEncoder, Weights
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit, cap

D, C = 12, 3
ENCODERS = [
    MLP((16,)),
    MLP((16,), bias=True),
    MLP((16,), activation="tanh"),
    MLP((16, 8)),
    MLP(()),
    Linear(),
]


def sized(encoder: Encoder) -> SizedEncoder:
    return SizedEncoder(encoder, D, C)


def started(encoder: SizedEncoder, seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    weights = encoder.initial_weights(generator, torch.float64)
    return {name: w + 0.1 * torch.randn(w.shape, generator=generator, dtype=w.dtype) for name, w in weights.items()}


def records(count: int, seed: int) -> Tensor:
    return torch.randn(count, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def public(samples: int = 1) -> Knowledge:
    return Knowledge(records(20, 99), torch.arange(20) % C, C, samples)


def jacobian(encoder: SizedEncoder, W: Weights, x: Tensor) -> JacobianUpload:
    return JacobianUpload(0, jacrev(lambda w: encoder(w, x).mean(0))(W))


def shared(encoder: SizedEncoder, W: Weights, x: Tensor) -> Round:
    return Round(W, (RepresentationUpload(0, encoder(W, x).mean(0)), jacobian(encoder, W, x)))


@pytest.mark.parametrize("encoder", ENCODERS, ids=repr)
def test_one_sample_is_read_off_its_jacobian_whatever_the_encoder(encoder: Encoder) -> None:
    psi, attack = sized(encoder), RankOne()
    for seed in range(4):
        x, other = records(2, seed)
        view = View.of(psi, [shared(psi, started(psi, seed), x[None])])
        guess = attack.guess(view, public())
        assert attack.score(guess, x) > 0.999
        assert attack.score(guess, other) < 0.9


def test_the_gram_protocol_hands_the_sample_over() -> None:
    psi, x = sized(MLP((16,))), records(1, 0)[0]
    upload = FactorUpload(0, torch.zeros(16), torch.ones(16, dtype=torch.bool), x)
    assert torch.equal(RankOne().guess(View.of(psi, [Round(started(psi, 0), (upload,))]), public()), x)


def test_noise_is_averaged_away_over_rounds() -> None:
    psi, (x,) = sized(MLP((16,))), records(1, 0)
    generator = torch.Generator().manual_seed(0)

    def noisy(seed: int) -> Round:
        W = started(psi, seed % 3)
        exact = jacobian(psi, W, x[None]).jacobian
        return Round(
            W,
            (JacobianUpload(0, {n: J + torch.randn(J.shape, generator=generator).double() for n, J in exact.items()}),),
        )

    rounds, known = [noisy(seed) for seed in range(200)], replace(public(), std={JacobianUpload: 1.0})
    scores = [cosine(RankOne(rounds=count).guess(View.of(psi, rounds), known), x) for count in (1, 10, 200)]
    assert scores[2] > 0.98
    assert scores[0] < scores[2]
    assert scores[1] < scores[2]


def test_two_samples_with_disjoint_patterns_are_both_recovered() -> None:
    psi = SizedEncoder(MLP((6,)), 2, 2)
    W = {"W1": torch.tensor([[1.0, -9.0]] * 3 + [[-9.0, 1.0]] * 3), "W2": torch.randn(2, 6)}
    x = torch.tensor([[1.0, 0.1], [0.05, 1.0]])
    known = Knowledge(torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1]), 2, samples=2)
    for attack in (FlippedUnits(), FactorisedSamples()):
        guess = attack.guess(View.of(psi, [shared(psi, W, x)]), known)
        assert attack.score(guess, x) == 1.0
        assert attack.score(guess, -x) == 0.0


def moving(psi: SizedEncoder, x: Tensor, rounds: int) -> View:
    """Rounds at weights that move a little, as training moves them."""
    generator = torch.Generator().manual_seed(1)
    W, seen = started(psi, 0), []
    for _ in range(rounds):
        W = {name: w + 0.01 * torch.randn(w.shape, generator=generator, dtype=w.dtype) for name, w in W.items()}
        seen.append(shared(psi, W, x))
    return View.of(psi, seen)


def test_samples_behind_a_mean_are_read_as_units_flip_between_rounds() -> None:
    psi, x = sized(MLP((32,))), records(8, 3)
    attack = FlippedUnits()
    known = Knowledge(1.5 * records(20, 99), torch.arange(20) % C, C, samples=8)
    guess = attack.guess(moving(psi, x, 150), known)
    assert attack.score(guess, x) >= 0.75
    assert attack.score(guess, records(8, 4)) == 0.0
    assert attack.score(attack.guess(moving(psi, x, 1), known), x) <= 0.25
    assert attack.score(attack.blind(known), x) == 0.0


def test_what_was_found_is_taken_out_and_shows_what_was_behind_it() -> None:
    """The first sample is alone at two units, the second nowhere: it is seen once the first is taken out."""
    psi = SizedEncoder(MLP((4,)), 2, 2)
    W = {"W1": torch.tensor([[1.0, -9.0]] * 2 + [[1.0, 1.0]] * 2), "W2": torch.tensor([[1.0, 2, -1, 3], [2, -1, 1, 1]])}
    x, known = torch.tensor([[1.0, 0.1], [0.05, 1.0]]), Knowledge(torch.eye(2), torch.tensor([0, 1]), 2, samples=2)
    for passes, read in ((1, 0.5), (5, 1.0)):
        attack = FlippedUnits(passes=passes)
        assert attack.score(attack.guess(View.of(psi, [shared(psi, W, x)]), known), x) == read


@pytest.mark.parametrize("positive", [False, True])
def test_a_few_samples_are_factorised_from_rounds_that_do_not_follow_each_other(positive: bool) -> None:
    psi, x, other = sized(MLP((64,))), records(3, 3), records(3, 4)
    x, other = (x.clamp_min(0), other.clamp_min(0)) if positive else (x, other)
    view = View.of(psi, [shared(psi, started(psi, seed), x) for seed in range(6)])
    public_x = records(20, 99).clamp_min(0) if positive else records(20, 99)
    known, attack = Knowledge(public_x, torch.arange(20) % C, C, samples=3), FactorisedSamples()
    guess = attack.guess(view, known)
    assert attack.score(guess, x) == 1.0
    assert attack.score(guess, other) == 0.0
    assert attack.score(attack.blind(known), x) == 0.0


def trained(
    psi: SizedEncoder, W: Weights, x: Tensor, y: Tensor, compensation: Weights | None, lr: float, steps: int
) -> ModelUpload:
    """Local steps by autograd, with ∇C_k held fixed and C_k = 0."""
    Wk = dict(W)
    for _ in range(steps):
        g = grad(lambda w: F.cross_entropy(0.4 * psi(w, x), y))(Wk)
        r = (torch.softmax(0.4 * psi(Wk, x), -1) - F.one_hot(y, C)).mean(0)
        for name, w in Wk.items():
            extra = 0 if compensation is None else torch.tensordot(r, compensation[name], 1)
            Wk[name] = w - lr * (g[name] + extra)
    return ModelUpload(0, Wk)


@pytest.mark.parametrize("noise", [0.0, 3.0])
@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("steps", [1, 5])
def test_record_and_label_are_read_off_the_update(compensated: bool, noise: float, steps: int) -> None:
    psi, generator = SizedEncoder(MLP((32,)), 60, C), torch.Generator().manual_seed(5)
    known = Knowledge(torch.rand(9, 60, generator=generator, dtype=torch.float64), torch.arange(9) % C, C)
    for seed in range(3):
        W = psi.initial_weights(torch.Generator().manual_seed(seed), torch.float64)
        x = (torch.rand(1, 60, generator=generator) < 0.3).double()
        others = (torch.rand(10, 60, generator=generator) < 0.3).double()
        sent: Weights | None = None
        if compensated:
            exact = jacrev(lambda w, others=others: 0.05 * psi(w, others).sum(0))(W)
            sent = {n: J + noise * torch.randn(J.shape, generator=generator).double() for n, J in exact.items()}
        for y in range(C):
            upload = trained(psi, W, x, torch.tensor([y]), sent, 0.01, steps)
            messages = (upload,) if sent is None else (upload, JacobianAggregate(0, sent))
            view = View.of(psi, [Round(W, messages)], own=0.4, lr=0.01)
            assert UpdateSample().score(UpdateSample().guess(view, known), x[0]) > 0.98
            assert UpdateSample().score(UpdateSample().guess(view, known), others[0]) < 0.8
            assert int(UpdateLabel().guess(view, known)) == y


@pytest.mark.parametrize("encoder", [MLP((16,), activation="tanh"), MLP((16, 8), bias=True)], ids=repr)
def test_labels_behind_other_encoders_follow_from_the_jacobian(encoder: MLP) -> None:
    psi, W, x = sized(encoder), started(sized(encoder), 0), records(1, 2)
    for y in range(C):
        messages = (trained(psi, W, x, torch.tensor([y]), None, 0.01, 1), jacobian(psi, W, x))
        view = View.of(psi, [Round(W, messages)], own=0.4, lr=0.01)
        assert int(UpdateLabel().guess(view, public())) == y


class Hidden(MLP):
    """An encoder that does not say which weight meets its features."""

    @property
    def feature_weight(self) -> None:  # type: ignore[override]
        return None

    def structure(self, num_features: int, num_classes: int) -> None:
        return None


@pytest.mark.parametrize("what", ["jacobian", "update"])
def test_an_unknown_encoder_is_searched(what: str) -> None:
    psi = sized(Hidden((16,), activation="tanh"))
    W, x, attack = started(psi, 0), records(1, 2), MatchedGradient(starts=1)
    message = jacobian(psi, W, x) if what == "jacobian" else trained(psi, W, x, torch.tensor([1]), None, 0.01, 1)
    view = View.of(psi, [Round(W, (message,))], own=0.4, lr=0.01)
    assert attack.applies(view)
    assert not RankOne().guess(view, public()).equal(x[0])
    assert attack.score(attack.guess(view, public()), x[0]) > 0.95
    assert attack.score(attack.guess(view, public()), records(1, 3)[0]) < 0.9


def test_class_shares_follow_from_the_update() -> None:
    psi, known = sized(MLP((32,))), public(60)
    for counts in ((40, 10, 10), (0, 30, 30), (20, 20, 20)):
        y = torch.repeat_interleave(torch.arange(C), torch.tensor(counts))
        x, W = records(60, 7) * 0.3, started(psi, 1)
        round_ = Round(W, (trained(psi, W, x, y, None, 0.01, 1), *shared(psi, W, x).messages))
        view = View.of(psi, [round_], own=0.4, lr=0.01)
        truth = torch.tensor(counts) / 60
        assert ClassShares().score(ClassShares().guess(view, known), truth) > 0.95


@pytest.mark.parametrize("law", ["noise", "bound"])
def test_class_shares_behind_noise_or_a_tight_bound_are_those_of_public_records(law: str) -> None:
    psi, x, W = sized(MLP((32,))), records(60, 7) * 0.3, started(sized(MLP((32,))), 1)
    exact, generator = trained(psi, W, x, torch.zeros(60, dtype=torch.int64), None, 0.01, 1), torch.Generator()
    after = {name: w + 10 * torch.randn(w.shape, generator=generator).double() for name, w in exact.weights.items()}
    if law == "bound":
        after = {name: W[name] + 1e-6 * (w - W[name]) for name, w in exact.weights.items()}
    known = replace(public(60), std={ModelUpload: 10.0} if law == "noise" else {}, bound={ModelUpload: 1e-6})
    view = View.of(psi, [Round(W, (ModelUpload(0, after), *shared(psi, W, x).messages))], own=0.4, lr=0.01)
    left = ClassShares().guess(view, known)
    torch.testing.assert_close(left, known.shares().to(left), atol=0.2, rtol=0)
    if law == "noise":
        torch.testing.assert_close(left, known.shares().to(left), atol=0.02, rtol=0)


@pytest.mark.parametrize("encoder", [MLP((32,)), MLP((32,), activation="tanh"), Linear()], ids=repr)
def test_the_mean_record_of_several_is_read_off_the_jacobian_and_sharpened_behind_noise(encoder: Encoder) -> None:
    psi, attack, generator = sized(encoder), DecodedSample(), torch.Generator().manual_seed(0)
    x, other = records(10, 3) + 0.5, records(10, 4) - 0.5
    known = Knowledge(records(40, 99), torch.arange(40) % C, C, samples=10)
    view = View.of(psi, [shared(psi, started(psi, seed), x) for seed in range(4)])
    assert attack.score(attack.guess(view, known), x.mean(0)) > 0.95
    assert attack.score(attack.guess(view, known), other.mean(0)) < 0.5
    sent = view.rounds[0]((JacobianUpload,)).find(JacobianUpload)
    assert sent is not None
    noise = {name: J + 1e4 * torch.randn(J.shape, generator=generator).double() for name, J in sent.jacobian.items()}
    hidden = View.of(psi, [Round(started(psi, 0), (JacobianUpload(0, noise),))])
    guess = attack.guess(hidden, replace(known, std={JacobianUpload: 1e4}))
    assert cosine(guess, known.mean) > 0.9  # what is known without messages


def test_class_shares_behind_another_encoder_follow_from_its_jacobian() -> None:
    psi, known = sized(MLP((32,), activation="tanh")), public(60)
    x, W, y = records(60, 7) * 0.3, started(sized(MLP((32,), activation="tanh")), 1), (torch.arange(60) < 45).long()
    round_ = Round(W, (trained(psi, W, x, y, None, 0.01, 1), *shared(psi, W, x).messages))
    view = View.of(psi, [round_], own=0.4, lr=0.01)
    assert ClassShares().applies(view)
    assert ClassShares().score(ClassShares().guess(view, known), torch.tensor([0.25, 0.75, 0.0])) > 0.9


def test_representations_of_a_linear_encoder_decode_to_records() -> None:
    psi, x, attack = SizedEncoder(MLP(()), D, D), records(1, 1)[0], DecodedSample()
    W = {"W1": torch.randn(D, D, generator=torch.Generator().manual_seed(0)).double()}
    known = Knowledge(records(60, 99), torch.arange(60) % C, C)
    guess = attack.guess(View.of(psi, [Round(W, (RepresentationUpload(0, psi(W, x)),))]), known)
    assert attack.score(guess, x) > 0.99
    assert attack.score(guess, records(1, 2)[0]) < 0.9


def worlds(psi: SizedEncoder, std: float) -> tuple[TwoWorlds, Callable[[int, int], View]]:
    x, W = records(3, 0), started(psi, 0)
    known = TwoWorlds(
        records(20, 99),
        torch.arange(20) % C,
        C,
        std={RepresentationUpload: std},
        worlds=(torch.cat([records(1, 5), x[1:]]), x),
        uploads=lambda w, data: (RepresentationUpload(0, psi(w, data).mean(0)),),
    )

    def seen(world: int, seed: int) -> View:
        (exact,) = known.uploads(W, known.worlds[world])
        noise = std * torch.randn(C, generator=torch.Generator().manual_seed(seed)).double()
        return View.of(psi, [Round(W, (RepresentationUpload(0, exact.h + noise),))])

    return known, seen


def test_membership_is_certain_without_noise_and_chance_with_much() -> None:
    psi, attack = sized(MLP((16,))), WhichWorld()
    known, seen = worlds(psi, 0.0)
    assert [int(attack.guess(seen(world, 0), known)) for world in (0, 1)] == [0, 1]
    known, seen = worlds(psi, 1000.0)
    right = [attack.score(attack.guess(seen(s % 2, s), known), torch.tensor(s % 2)) for s in range(400)]
    assert 0.4 < sum(right) / len(right) < 0.6


def test_membership_errors_are_those_of_two_normal_laws() -> None:
    """The test's accuracy is Φ(‖u₁ − u₀‖/2σ), the best possible."""
    psi, attack = sized(MLP((16,))), WhichWorld()
    known, _ = worlds(psi, 1.0)
    W = started(psi, 0)
    zero, one = (known.uploads(W, x)[0].h for x in known.worlds)  # type: ignore[attr-defined]
    std = float((one - zero).norm()) / 2
    known, seen = worlds(psi, std)
    right = [attack.score(attack.guess(seen(s % 2, s), known), torch.tensor(s % 2)) for s in range(1000)]
    assert sum(right) / len(right) == pytest.approx(0.8413, abs=0.04)


def behind(records_sent: Tensor, seed: int) -> View:
    """The Jacobian of a client with the one record that it sent."""
    psi = sized(MLP((16,)))
    return View.of(psi, [Round(started(psi, seed), (jacobian(psi, started(psi, seed), records_sent),))])


@pytest.mark.parametrize("epsilon", [0.01, 4.0])
def test_membership_behind_randomised_records_errs_as_often_as_epsilon_allows(epsilon: float) -> None:
    """z·x₁ > z·x₀ is right with P(a > g) of the cap, within a point of the best test; e^ε bounds it."""
    x = torch.linalg.qr(records(12, 0)).Q[:2]
    attack, right, source = WhichWorld(), [], np.random.default_rng(0)
    std = 1 / cap(epsilon)[2]
    known = TwoWorlds(x, torch.arange(2), 2, disguise=std, worlds=(x[:1], x[1:]))
    for trial in range(400):
        world = trial % 2
        z = torch.from_numpy(PrivUnit().draw(x[world : world + 1].numpy(), epsilon, source))
        upload = FactorUpload(0, torch.zeros(16), torch.ones(16, dtype=torch.bool), z[0])
        view = View.of(sized(MLP((16,))), [Round({}, (upload,))])
        right.append(attack.score(attack.guess(view, known), torch.tensor(world)))
    gamma, p, _ = cap(epsilon)
    q = float(ndtr(-gamma))
    best = p * (1 - q) + (p * q + (1 - p) * (1 - q)) / 2
    assert sum(right) / 400 == pytest.approx(best, abs=0.06)


def test_membership_behind_a_rotation_is_told_by_the_angles_to_known_records() -> None:
    attack, landmarks = WhichWorld(), records(6, 8)
    Q = torch.linalg.qr(records(12, 9)).Q
    elsewhere = torch.linalg.qr(records(12, 10)).Q
    right: dict[str, list[float]] = {"same": [], "other": []}
    for trial in range(40):
        x, world = records(2, 20 + trial), trial % 2
        for name, turn in (("same", Q), ("other", elsewhere)):
            pair = (landmarks, landmarks @ turn.T)
            known = TwoWorlds(records(9, 99), torch.arange(9) % 2, 2, worlds=(x[:1], x[1:]), landmarks=pair)
            view = behind(x[world : world + 1] @ Q.T, trial)
            right[name].append(attack.score(attack.guess(view, known), torch.tensor(world)))
    assert sum(right["same"]) == 40
    assert sum(right["other"]) < 30
