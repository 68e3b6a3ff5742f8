"""What accounting is told of a federation, and noise through the messages of single clients."""

from __future__ import annotations

import math

import pytest
import torch
from graph_builders import random_clients
from protections import protection

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.federated.protection.protected_messages import protected
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.federated.protocol.messages import FactorUpload, JacobianUpload, ModelUpload, RepresentationUpload
from gfl_lightning.federated.server.weighting import Weighting
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.learnable import LearnablePolynomial
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mixing import direct_ratio, leverage
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts

SMALL = MLP((5,))


def facts_of(federation: Federation, weighting: Weighting = "uniform") -> Facts:
    return release_facts(federation.graph, federation.model, federation.estimator, federation.schedule, weighting)


def test_facts_of_a_federation() -> None:
    graph = random_clients("sc")
    federation = Federation(graph, SMALL, local=LocalTraining(0.3, 7, batch_size=2))
    facts = facts_of(federation)
    train = graph.counts(graph.split == 0)
    assert facts.shared.tolist() == graph.counts(graph.shared).tolist()
    assert facts.rate.tolist() == pytest.approx([min(1.0, 2 / int(n)) for n in train])
    assert (facts.steps, facts.everyone_shares) == (7, True)
    assert facts.entries == {"hidden": 3, "jacobian": 3 * (5 * 6 + 3 * 5), "update": 5 * 6 + 3 * 5}
    A = federation.propagation.dense().fill_diagonal_(0)
    assert torch.allclose(facts.leverage, leverage(A, graph.training_clients))
    assert facts.signal == pytest.approx(float(direct_ratio(A).max()))


def test_what_is_not_uploaded_is_not_counted() -> None:
    graph = random_clients("dnc")
    alone = facts_of(Federation(graph, SMALL, Identity())).entries
    assert alone == {"hidden": 0, "jacobian": 0, "update": 45}
    assert facts_of(Federation(graph, SMALL, estimator="v1")).entries == {"hidden": 3, "jacobian": 0, "update": 45}
    learned = facts_of(Federation(graph, SMALL, LearnablePolynomial(0.2, 3))).entries
    assert learned == {"hidden": 3, "jacobian": 3 * 45, "update": 45 + 4}


def test_several_hops_are_taken_to_reveal_everything() -> None:
    facts = facts_of(Federation(random_clients("dnc"), SMALL, LearnablePolynomial()))
    assert facts.leverage.tolist() == [1.0] * 10
    assert facts.signal == 1


def test_uploads_that_stand_are_no_longer_hidden_by_aggregation() -> None:
    """A client that shares rarely is mixed with fresh noise of others again and again, which averages out."""
    facts = facts_of(Federation(random_clients("dnc"), SMALL, participation=Participation(share=0.5)))
    assert facts.leverage.tolist() == [1.0] * 10
    assert not facts.everyone_shares


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_an_average_dilutes_by_everyones_noise_but_the_fellows(weighting: Weighting) -> None:
    graph = random_clients("snc")
    federation = Federation(graph, SMALL, weighting=weighting)
    facts, clients = facts_of(federation, weighting), graph.training_clients.tolist()
    votes = dict(zip(clients, federation.votes.tolist(), strict=True))
    for j in clients:
        worst = max(votes[j] ** 2 / sum(v**2 for i, v in votes.items() if i != k) for k in clients if k != j)
        assert float(facts.diluted[j]) == pytest.approx(worst)


def test_few_training_clients_dilute_less() -> None:
    graph = random_clients("dnc")
    shares = [
        float(facts_of(Federation(graph, SMALL, participation=Participation(train=n))).diluted.min())
        for n in (1, 2, 3, 6)
    ]
    assert shares == pytest.approx([1.0, 1.0, 1 / 2, 1 / 5])


def test_attendance_counts_every_client() -> None:
    for participation in (Participation(), Participation(0.5, 0.4)):
        federation = Federation(random_clients("dnc"), SMALL, participation=participation, seed=3)
        trained, shared = federation.schedule.attendance(range(2, 9))
        expected = torch.zeros(2, 10, dtype=torch.int64)
        for t in range(2, 9):
            expected[0, federation.schedule.who_trains(t)] += 1
            expected[1, federation.schedule.who_shares(t)] += 1
        assert torch.equal(torch.stack([trained, shared]), expected)
        assert int(federation.schedule.attendance(range(0))[1].sum()) == 0


def test_a_protected_upload_is_bounded_and_every_entry_gets_fresh_noise() -> None:
    drawn, source = torch.Generator().manual_seed(0), NoiseKey.of_seed(0).source("test")
    W = SizedEncoder(SMALL, 6, 3).initial_weights(drawn, torch.float64)
    noisy = protection(
        hidden_std=0.5, jacobian_std=0.2, update_std=0.1, hidden_clip=1.0, jacobian_clip=2.0, update_clip=0.3
    )
    J = {name: torch.randn(3, *w.shape, generator=drawn, dtype=torch.float64) for name, w in W.items()}
    moved = {name: w + 1.0 for name, w in W.items()}
    uploads = [
        RepresentationUpload(0, torch.full((3,), 2.0, dtype=torch.float64)),
        JacobianUpload(0, J),
        ModelUpload(0, moved),
    ]
    for upload, bound, std in zip(uploads, (1.0, 2.0, 0.3), (0.5, 0.2, 0.1), strict=True):

        def entries(message: object) -> torch.Tensor:
            if isinstance(message, RepresentationUpload):
                return message.h
            assert isinstance(message, JacobianUpload | ModelUpload)
            parts = (
                message.jacobian
                if isinstance(message, JacobianUpload)
                else {n: w - W[n] for n, w in message.weights.items()}
            )
            return torch.cat([part.flatten() for part in parts.values()])

        draws = torch.stack([entries(protected(upload, noisy, W, source)) for _ in range(3000)])
        exact = entries(upload)
        clipped = exact * bound / exact.norm()
        assert float((draws.mean(0) - clipped).abs().max()) < 5 * std / math.sqrt(3000)
        covariance = (draws - clipped).T @ (draws - clipped) / 3000
        assert float(
            (covariance - std**2 * torch.eye(len(clipped), dtype=torch.float64)).abs().max()
        ) < 6 * std**2 * math.sqrt(2 / 3000)


def test_factors_cannot_be_protected() -> None:
    upload = FactorUpload(0, torch.ones(5), torch.ones(5, dtype=torch.bool), torch.ones(6))
    with pytest.raises(InputError, match="protocol must be jacobian where uploads are protected, got a FactorUpload"):
        protected(upload, protection(hidden_std=1.0), {}, torch.Generator())
    assert protected(upload, Protection(), {}, torch.Generator()) is upload
    with pytest.raises(InputError, match="unit must be client where a client's mean is bounded, got 'sample'"):
        protected(upload, protection(hidden_clip=1.0, unit="sample"), {}, torch.Generator())
