"""A canary audit of what fellow clients see together: aggregates C_k, their own noise, and the average of models.

The account grants m colluding fellows a share of the server's view, the leverage, that depends on Ã and on m. It must
not be shown to be too small; and that of one fellow must be found out to be too small for two.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from canaries import Audit, audited
from numpy.typing import NDArray
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.federated.protocol.client_party import ClientParty, OwnSamples
from gfl_lightning.federated.protocol.messages import Message, ModelBroadcast, ModelUpload
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.privacy.accounting import Spending, epsilon_of
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import releases

pytestmark = pytest.mark.usefixtures("steady_keys")

Array = NDArray[np.float64]

COPIES, ROUNDS, DELTA, CANARY = 100, 100, 0.1, 30.0
TOLD = Gaussian(1.0, 1.0)
COMMON = range(3, 9)
"""Clients whom both client 1 and client 2 know; client 0, the canary, is known to 1 alone. Client 9 trains."""
EDGES = [(0, 1), (7, 9), (8, 9), *((k, j) for k in (1, 2) for j in COMMON)]
W = {"W": torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)}


def world(canary: float, training: tuple[int, ...], copies: int = 1) -> ClientGraph:
    """The sample of client 0 at a place on a line; as many copies of the network as there are to be outputs."""
    x = torch.eye(10, 3, dtype=torch.float64)
    x[0] = canary
    split = torch.full((10,), int(Split.VAL), dtype=torch.int8)
    split[list(training)] = int(Split.TRAIN)
    edges = torch.tensor(EDGES).T[:, None] + 10 * torch.arange(copies)[:, None]
    return ClientGraph.from_edges(
        x=x.repeat(copies, 1),
        y=torch.zeros(10 * copies, dtype=torch.int64),
        client=torch.arange(10 * copies),
        split=split.repeat(copies),
        shared=torch.ones(10 * copies, dtype=torch.bool),
        edge_index=edges.flatten(1),
        num_classes=2,
    )


def federation(graph: ClientGraph, protection: Protection, aggregator: Aggregator) -> Federation:
    local = LocalTraining(1.0, 1)
    key = NoiseKey.fresh()
    return Federation(graph, Linear(), aggregator, "v1", local, protection=protection, noise_key=key)


def claimed(made: Federation, kind: str, colluding: int) -> float:
    """What the account says of one release of client 0 against so many fellows."""
    facts = release_facts(made.graph, made.model, made.estimator, made.schedule, "uniform", colluding)
    share = facts.diluted if kind == "update" else facts.leverage
    cost = releases(made.protection, Guarantee(delta=DELTA, colluding=colluding), facts).costs[kind]
    return epsilon_of(Spending(float(share[0] * cost.mu_squared[0])), DELTA)


def best_view(rows: Tensor, training: tuple[int, ...], m: int) -> tuple[tuple[int, ...], Tensor, Tensor]:
    """The coalition of m fellows that sees most of client 0, whose aggregates it has, and how it weighs them."""
    found = []
    for S in combinations(range(1, len(rows)), m):
        seen = rows[[*{*training, *S}]]
        R = seen.clone()
        R[:, list(S)] = 0  # their own noise, which they know
        a = torch.linalg.pinv(R @ R.T, rtol=1e-9) @ R[:, 0]
        found.append((float(a @ R[:, 0]), S, seen, a))
    _, S, seen, a = max(found, key=lambda one: one[0])
    return S, seen, a


def of_aggregates(canary: float, protection: Protection, aggregator: Aggregator, m: int, times: int) -> Array:
    """Σ a_k (C_k − what is of the coalition itself), in so many times a hundred networks."""
    alone = federation(world(canary, (9,)), protection, aggregator)
    S, seen, a = best_view(alone.propagation.dense().fill_diagonal_(0), (9,), m)
    many = [federation(world(canary, (9,), COPIES), protection, aggregator) for _ in range(times)]
    H = torch.cat([made.shared(made.start(W)) for made in many]).view(-1, 10, 2)
    own = torch.zeros_like(H)
    own[:, list(S)] = H[:, list(S)]
    return ((seen @ H - seen @ own)[..., 0] @ a).numpy()


def of_averages(canary: float, protection: Protection, m: int) -> Array:
    """What is left of the sum of models 0, 1 and 2 for those of the clients 1 … m, who know their own."""
    made = federation(world(canary, (0, 1, 2)), protection, Identity())
    graph, parties, nothing = made.graph, [], {"W": 0 * W["W"]}
    for k in [0, *range(1 + m, 3)]:
        samples = OwnSamples(graph.x[[k]], graph.x[[k]], graph.y[[k]], graph.weight[[k]])
        own = made.propagation.dense()[k, [k]]
        parties.append(ClientParty(k, made.model, samples, own, made.local, "jacobian", False, made.protection))
    scores = []
    for t in range(ROUNDS):
        uploads = [one.train(ModelBroadcast(nothing), [], 1.0, [torch.arange(1)], t)[0] for one in parties]
        scores.append(sum(_score(upload) for upload in uploads))
    return np.array(scores)


def _score(upload: Message) -> float:
    assert isinstance(upload, ModelUpload)
    return float(upload.weights["W"][0].sum() - upload.weights["W"][1].sum())


def audit(kind: str, seeing: int, granted: int, aggregator: Aggregator, times: int = 2) -> Audit:
    """What so many fellows prove, against what is claimed for as many as are granted."""
    if kind == "update":
        protection, training = Protection(update=Gaussian(2.0, 1.0)), (0, 1, 2)
        sides = [of_averages(canary, protection, seeing) for canary in (CANARY, -CANARY)]
    else:
        protection, training = Protection(hidden=TOLD), (9,)
        sides = [of_aggregates(canary, protection, aggregator, seeing, times) for canary in (CANARY, -CANARY)]
    made = federation(world(CANARY, training), protection, aggregator)
    return audited(sides[0], sides[1], claimed(made, kind, granted), DELTA)


@pytest.mark.parametrize("aggregator", [SGC(k=1), SGC(k=2), APPNP(0.2, 5)], ids=str)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_fellows_are_not_shown_to_see_more_than_they_are_granted(m: int, aggregator: Aggregator) -> None:
    found = audit("hidden", m, m, aggregator)
    assert found.proven <= found.claimed


@pytest.mark.parametrize("m", [1, 2])
def test_nor_of_the_average_of_models(m: int) -> None:
    found = audit("update", m, m, Identity())
    assert found.proven <= found.claimed


def test_two_fellows_are_found_to_see_more_than_one_is_granted() -> None:
    """What client 1 knows and client 2 does not is the canary: neither tells much alone, both together all of it."""
    alone, together = (audit("hidden", 2, granted, SGC(k=1), times=15) for granted in (1, 2))
    assert alone.proven > alone.claimed
    assert together.proven <= together.claimed


def test_a_leverage_of_a_part_of_the_truth_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from gfl_lightning.federated.protection import release_facts as facts  # noqa: PLC0415

    whole = facts.leverage
    monkeypatch.setattr(facts, "leverage", lambda *given: whole(*given) / 8)
    found = audit("hidden", 2, 2, SGC(k=1), times=15)
    assert found.proven > found.claimed
