"""A canary audit of every mechanism, through the parties, the engine and the records that a fit uses.

Two neighbours that differ as much as they may are told apart by a threshold on what an adversary sees. No mechanism
may be shown to keep less than it claims; and one with too little noise, or without its bound, must be found out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from canaries import Audit, audited
from numpy.typing import NDArray
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protection import guard, protected_messages, step_guard
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.federated.protocol.client_party import ClientParty, OwnSamples
from gfl_lightning.federated.protocol.messages import JacobianUpload, ModelBroadcast, ModelUpload, RepresentationUpload
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.losses.squared_error import SquaredError
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.privacy.accounting import SampledSteps, Spending, epsilon_of
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.ledger import Ledger
from gfl_lightning.privacy.mechanisms import gaussian_noise
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.gaussian_direction import GaussianDirection
from gfl_lightning.privacy.randomise.multi_bit import MultiBit
from gfl_lightning.privacy.randomise.once import RandomisedOnce, randomised
from gfl_lightning.privacy.randomise.piecewise import Piecewise
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit
from gfl_lightning.privacy.randomise.randomised_response import RandomisedResponse
from gfl_lightning.privacy.randomise.subset import Subset
from gfl_lightning.privacy.releases import releases

pytestmark = pytest.mark.usefixtures("steady_keys")

Array = NDArray[np.float64]

TRIALS = 120
RECORDS = 4_000
DELTA = 0.1
"""δ of the claims: large, so that a hundred outputs prove something."""
CANARY = 30.0
TOLD = Gaussian(2.0, 1.0)
STEPS = StepNoise(1.0, 2.0)


def neighbours(N: int = 4) -> tuple[ClientGraph, ClientGraph]:
    """Clients in a ring; client 0 has one training sample, at one end of a line or at the other."""
    x = torch.eye(N, 3, dtype=torch.float64)
    x[0] = CANARY
    edges = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])
    split = torch.tensor([int(Split.TRAIN), *[int(Split.VAL)] * (N - 1)], dtype=torch.int8)
    one = ClientGraph.from_edges(
        x=x,
        y=torch.zeros(N, dtype=torch.int64),
        client=torch.arange(N),
        split=split,
        shared=torch.ones(N, dtype=torch.bool),
        edge_index=edges,
        num_classes=2,
    )
    other = x.clone()
    other[0] = -CANARY
    return one, replace(one, x=other)


def weights() -> dict[str, Tensor]:
    return {"W": torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)}


def undecided(made: Federation) -> dict[str, Tensor]:
    """W̄ at which opposite samples of a class have opposite gradients, where only those count."""
    return {"W": 0 * weights()["W"]} if made.aggregator.isolates else weights()


def federation(graph: ClientGraph, protection: Protection, **options: Any) -> Federation:
    local = LocalTraining(1.0, 1)
    return Federation(graph, Linear(), local=local, protection=protection, noise_key=NoiseKey.fresh(), **options)


def claimed(made: Federation, kinds: tuple[str, ...], sharings: int = 1) -> float:
    """What the account says of the releases of some kinds, made so often, for the client of the canary."""
    schedule, guarantee = made.schedule, Guarantee(delta=DELTA)
    facts = release_facts(made.graph, made.model, made.estimator, schedule, "uniform")
    found = releases(made.protection, guarantee, facts)
    mu = sum(float(found.costs[kind].mu_squared.max()) for kind in kinds)
    steps = () if found.step is None or "update" not in kinds else (SampledSteps(*found.step, made.local.steps),)
    return epsilon_of(Spending(sharings * mu, steps), DELTA)


def party(made: Federation) -> ClientParty:
    """Client 0 as it would be deployed."""
    graph = made.graph
    samples = OwnSamples(graph.x[:1], graph.x[:1], graph.y[:1], graph.weight[:1])
    own = made.propagation.dense()[0, :1]
    compensated = made.estimator == "compensated"
    return ClientParty(0, made.model, samples, own, made.local, "jacobian", compensated, made.protection)


def quiet(protection: Protection) -> Protection:
    """The same bounds with next to no noise: what the adversary knows of its canary."""
    kinds = ("hidden", "jacobian", "update", "validation")
    noisy = {kind: getattr(protection, kind) for kind in kinds}
    still = {kind: replace(one, std=1e-9) for kind, one in noisy.items() if one.is_noisy}
    steps = protection.steps
    still_steps = steps if steps.is_inert else replace(steps, noise_multiplier=1e-9)
    return replace(protection, steps=still_steps, **still)


@dataclass(frozen=True)
class Case:
    """Outputs that a mechanism protects, made by the parties or the engine.

    Args:
        outputs: ``(graph, protection, trials)`` to ``[trials, numbers]``.
        protection: bounds and noise.
        kinds: what is released.
        options: of the federation.
        clients: N.
    """

    outputs: Callable[[Federation, int], Array]
    protection: Protection
    kinds: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    turned: bool = False
    clients: int = 4

    def audit(self, trials: int) -> Audit:
        """Score outputs along the line between the two that the adversary expects."""
        sides, expected = [], []
        for graph in neighbours(self.clients):
            world = (
                replace(graph, split=graph.split.flip(0), y=torch.arange(len(graph.y)) % 2) if self.turned else graph
            )
            made = federation(world, self.protection, **self.options)
            sides.append(self.outputs(made, trials))
            expected.append(self.outputs(federation(world, quiet(self.protection), **self.options), 1)[0])
        line = expected[0] - expected[1]
        return audited(sides[0] @ line, sides[1] @ line, claimed(made, self.kinds), DELTA)


def of_sharing(made: Federation, trials: int) -> Array:
    """The last message that client 0 shares, in so many rounds from the same W̄."""
    client, broadcast = party(made), ModelBroadcast(weights())
    return torch.stack([_numbers(client.share(broadcast, t)[-1]) for t in range(trials)]).numpy()


def of_training(made: Federation, trials: int) -> Array:
    """The model that client 0 uploads, in so many rounds from the same W̄."""
    client, broadcast, batch = party(made), ModelBroadcast(undecided(made)), [torch.arange(1)]
    return torch.stack([_numbers(client.train(broadcast, [], 1.0, batch, t)[0]) for t in range(trials)]).numpy()


def _numbers(message: object) -> Tensor:
    if isinstance(message, RepresentationUpload):
        return message.h.flatten()
    if isinstance(message, JacobianUpload):
        return torch.cat([part.flatten() for part in message.jacobian.values()])
    assert isinstance(message, ModelUpload)
    return torch.cat([part.flatten() for part in message.weights.values()])


def of_rounds(made: Federation, trials: int) -> Array:
    """W̄ after a round of the engine, in so many rounds from the same W̄."""
    states = [made.round(made.resume(t, undecided(made), _moved(made, t)))[0] for t in range(trials)]
    return torch.stack([torch.cat([part.flatten() for part in state.weights.values()]) for state in states]).numpy()


def of_exchanges(made: Federation, trials: int) -> Array:
    """ĥ of client 0 as the engine uploads it, in so many rounds from the same W̄."""
    return torch.stack([made.shared(made.resume(t, weights(), _moved(made, t)))[0] for t in range(trials)]).numpy()


def of_validation(made: Federation, trials: int) -> Array:
    """The private validation loss, of the canary alone."""
    told = [made.private_val_loss(made.resume(t, weights(), _moved(made, t))) for t in range(trials)]
    return np.array(told)[:, None]


def _moved(made: Federation, t: int) -> dict[str, Any]:
    """The progress of a run whose uploads all are of round t."""
    uploads = torch.full((made.graph.num_clients,), t)
    return {"uploaded_in": uploads, "enrolled_in": torch.zeros_like(uploads), "history": {}, "server": {}}


ALONE: dict[str, Any] = {"aggregator": Identity(), "estimator": "v1"}
HIDDEN, UPDATE = Protection(hidden=TOLD), Protection(update=TOLD)
JACOBIAN = Protection(hidden=Gaussian(1e6, 1.0), jacobian=TOLD)
BOTH = Protection(hidden=Gaussian(3.0, 1.0), jacobian=Gaussian(3.0, 1.0))
SAMPLES = Protection(steps=STEPS, unit="sample")
LOSS = Protection(validation=Gaussian(1.0, 1.0))
CASES = {
    "hidden, its client": Case(of_sharing, HIDDEN, ("hidden",), {"estimator": "v1"}),
    "hidden, the engine": Case(of_exchanges, HIDDEN, ("hidden",)),
    "jacobian, its client": Case(of_sharing, JACOBIAN, ("jacobian",)),
    "jacobian, the engine": Case(of_rounds, BOTH, ("hidden", "jacobian"), turned=True, clients=2),
    "update, its client": Case(of_training, UPDATE, ("update",), ALONE),
    "update, the engine": Case(of_rounds, UPDATE, ("update",), ALONE),
    "DP-SGD, its client": Case(of_training, SAMPLES, ("update",), ALONE),
    "DP-SGD, the engine": Case(of_rounds, SAMPLES, ("update",), ALONE),
    "validation loss": Case(of_validation, LOSS, ("validation",), ALONE, turned=True, clients=2),
}
BLURRED = ("jacobian, the engine",)
"""Where the canary is seen through so much else that missing noise is not found out."""


@pytest.mark.parametrize("name", CASES)
def test_no_upload_is_shown_to_keep_less_than_it_claims(name: str) -> None:
    found = CASES[name].audit(TRIALS)
    assert found.proven <= found.claimed


@pytest.mark.parametrize("name", [name for name in CASES if name not in BLURRED])
def test_missing_noise_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the noise: half of it would take more outputs than a test has time for."""
    whole = gaussian_noise.rounded_normal

    def part(shape: tuple[int, ...], source: Any) -> Tensor:
        return whole(shape, source) // 4

    monkeypatch.setattr(gaussian_noise, "rounded_normal", part)
    monkeypatch.setattr(step_guard, "rounded_normal", part)
    found = CASES[name].audit(TRIALS)
    assert found.proven > found.claimed


@pytest.mark.parametrize("name", [name for name in CASES if name != "validation loss"])
def test_a_missing_bound_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unbounded(norm: Tensor, bound: float) -> Tensor:
        return torch.ones_like(norm)

    def whole(values: Tensor, bound: float) -> Tensor:
        return values

    for place in (guard, protected_messages, step_guard):
        monkeypatch.setattr(place, "clip_scale", unbounded)
    monkeypatch.setattr(guard, "clipped_rows", whole)
    found = _unbounded_engine(name, monkeypatch)
    assert found.proven > found.claimed


def _unbounded_engine(name: str, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """The engine's bound on updates is in its paths: they are told of none."""
    if name == "update, the engine":
        plain = Federation.local_problem

        def without(self: Federation, *arguments: Any) -> Any:
            return replace(plain(self, *arguments), protection=Protection())

        monkeypatch.setattr(Federation, "local_problem", without)
    return CASES[name].audit(TRIALS)


def test_a_key_that_is_used_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that does not depend on what it hides: the same in both worlds, so that one look tells them apart."""
    key = NoiseKey(bytes(32), reproducible=True)
    monkeypatch.setattr(NoiseKey, "fresh", lambda: key)
    sides = []
    for graph in neighbours():
        made = federation(graph, Protection(hidden=TOLD))
        sides.append(made.shared(made.start(weights()))[0])
    expected = Gaussian(2.0, 1.0).draw((4, 2), key.source("hidden", 0))[0]
    guesses = [float((side - expected)[0]) for side in sides]
    assert guesses[0] == pytest.approx(1.0, abs=1e-6)
    assert guesses[1] == pytest.approx(-1.0, abs=1e-6)


# records that are randomised once


WORDS = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0]]), torch.tensor([[0, 0, 0, 0, 0, 0, 0, 1.0]])
ENDS = torch.tensor([[1.0, 0, 0]]), torch.tensor([[-1.0, 0, 0]])
RECORD: dict[str, tuple[RandomisedOnce, tuple[Tensor, Tensor]]] = {
    "PrivUnit": (RandomisedOnce(2.0, PrivUnit(), share_labels=0), ENDS),
    "Subset": (RandomisedOnce(2.0, Subset(), share_labels=0), WORDS),
    "MultiBit": (RandomisedOnce(2.0, MultiBit(-1.0, 1.0), share_labels=0), (ENDS[0][:, :1], ENDS[1][:, :1])),
    "GaussianDirection": (RandomisedOnce(2.0, GaussianDirection(DELTA), share_labels=0), ENDS),
}


def of_records(how: RandomisedOnce, rows: tuple[Tensor, Tensor], split: Split, **graph: Any) -> Audit:
    """Many clients with the record of the canary, in either world, as they take part."""
    sides = []
    for side in range(2):
        labels = graph.get("y", (torch.zeros(RECORDS, dtype=torch.int64),) * 2)[side]
        loss = {name: value for name, value in graph.items() if name in ("loss", "num_classes")}
        world = ClientGraph.from_edges(
            x=rows[side].expand(RECORDS, -1).contiguous(),
            y=labels,
            client=torch.arange(RECORDS),
            split=torch.full((RECORDS,), int(split), dtype=torch.int8),
            shared=torch.ones(RECORDS, dtype=torch.bool),
            edge_index=torch.zeros(2, 0, dtype=torch.int64),
            **{"num_classes": 2, **loss},
        )
        seen = randomised(world, how, NoiseKey.fresh().source("records").generator())
        sides.append(torch.cat([seen.x.double(), seen.y.double()[:, None]], 1).numpy())
    line = sides[0][: RECORDS // 3].mean(0) - sides[1][: RECORDS // 3].mean(0)
    return audited(sides[0] @ line, sides[1] @ line, how.epsilon, how.delta)


def feature_audit(name: str) -> Audit:
    how, rows = RECORD[name]
    return of_records(how, rows, Split.NONE)


def class_audit(epsilon: float) -> Audit:
    how = RandomisedOnce(epsilon, PrivUnit(), RandomisedResponse(), share_labels=0)
    y = torch.zeros(RECORDS, dtype=torch.int64), torch.ones(RECORDS, dtype=torch.int64)
    return of_records(how, (ENDS[0], ENDS[0]), Split.TRAIN, y=y, num_classes=3)


def number_audit(epsilon: float) -> Audit:
    how = RandomisedOnce(epsilon, PrivUnit(), Piecewise(0.0, 1.0), share_labels=0)
    y = torch.zeros(RECORDS).double(), torch.ones(RECORDS).double()
    loss = SquaredError().fitted(torch.tensor([0.0, 1.0]).double())
    return of_records(how, (ENDS[0], ENDS[0]), Split.TRAIN, y=y, num_classes=1, loss=loss)


LABELS: dict[str, Callable[[float], Audit]] = {"RandomisedResponse": class_audit, "Piecewise": number_audit}


@pytest.mark.parametrize("name", RECORD)
def test_no_randomised_record_is_shown_to_keep_less_than_it_claims(name: str) -> None:
    found = feature_audit(name)
    assert 0 < found.proven <= found.claimed


@pytest.mark.parametrize("name", RECORD)
def test_a_record_that_spends_twice_its_epsilon_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(RECORD[name][0].features)
    draw = kind.draw

    def generous(self: Any, x: Array, epsilon: float, source: np.random.Generator, records: int = 1) -> Array:
        return draw(self, x, 2 * epsilon, source, records)

    monkeypatch.setattr(kind, "draw", generous)
    found = feature_audit(name)
    assert found.proven > found.claimed


@pytest.mark.parametrize("name", LABELS)
def test_labels_keep_what_they_claim_and_half_of_it_is_found_out(name: str) -> None:
    honest, generous = LABELS[name](2.0), LABELS[name](4.0)
    assert 0 < honest.proven <= honest.claimed
    assert generous.proven > 2.0


def test_the_whole_account_of_a_round_holds() -> None:
    """All that the server sees of client 0 in a round, together, against the ledger's ε of that round."""
    protection = Protection(hidden=TOLD, jacobian=TOLD, update=TOLD)
    sides = []
    for graph in neighbours():
        made = federation(graph, protection)
        client, broadcast = party(made), ModelBroadcast(weights())
        rows = []
        for t in range(TRIALS):
            uploads = [*client.share(broadcast, t), *client.train(broadcast, [], 1.0, [torch.arange(1)], t)]
            rows.append(torch.cat([_numbers(one) for one in uploads]))
        sides.append(torch.stack(rows).numpy())
    facts = release_facts(graph, made.model, "compensated", made.schedule, "uniform")
    found = releases(protection, Guarantee(delta=DELTA), facts)
    ledger = Ledger.empty(4).after(found, made.schedule.attendance(range(1)))
    claim = ledger.server_epsilon(found, Guarantee(delta=DELTA))
    third = TRIALS // 3
    line = sides[0][:third].mean(0) - sides[1][:third].mean(0)
    audit = audited(sides[0] @ line, sides[1] @ line, claim, DELTA)
    assert audit.proven <= audit.claimed < math.inf
