"""Noise split over clients: what sums show of one, against the covariance itself, and what it saves."""

from __future__ import annotations

import math

import pytest
import torch
from graph_builders import random_clients
from masked_sums import met, opened, prepared, uploaded
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.masking.fixed_point import FixedPoint
from gfl_lightning.deploy.masking.noise import MaskedView, leverages, masked_epsilon, split_noise
from gfl_lightning.deploy.masking.ticket import Ticket
from gfl_lightning.federated.exchange.neighbourhood import rows_by_hop
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.protection.release_facts import release_facts
from gfl_lightning.graphs.client_graph import ClientGraph
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.aggregators.appnp import APPNP
from gfl_lightning.models.aggregators.identity import Identity
from gfl_lightning.privacy.gaussian import gaussian_epsilon
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.releases import Facts

ROUNDS = 10


def facts_of(graph: ClientGraph, aggregator: Aggregator) -> tuple[Facts, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Facts, Ã without its diagonal, votes, and attendance of ten rounds."""
    engine = Federation(graph, aggregator=aggregator, local=LocalTraining(0.1, 1))
    facts = release_facts(graph, engine.model, engine.estimator, engine.schedule, "uniform")
    others, _ = rows_by_hop(engine.propagation, torch.arange(graph.num_clients), False)
    votes = torch.zeros(graph.num_clients, dtype=torch.float64)
    votes[engine.schedule.training.clients] = 1 / len(engine.schedule.training)
    return facts, others, votes, engine.schedule.attendance(range(ROUNDS))


@pytest.mark.parametrize("seed", range(4))
def test_leverage_is_the_distance_that_the_noise_leaves(seed: int) -> None:
    """Moving client j by 1 moves R h by R_j, in noise of covariance R Rᵀ: their Mahalanobis distance, by hand."""
    generator = torch.Generator().manual_seed(seed)
    R = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    R = torch.cat([R, R[:1] + R[1:2]]) if seed % 2 else R
    covariance = torch.linalg.pinv(R @ R.T, rtol=1e-10)
    expected = torch.stack([column @ covariance @ column for column in R.T])
    torch.testing.assert_close(leverages(R), expected)
    assert float(leverages(R).sum()) == pytest.approx(3.0), "as much as there are independent rows"


def test_nearly_singular_rows_count_in_full() -> None:
    """A direction that is weak but there tells everything to who has exact sums."""
    R = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0 + 1e-9]], dtype=torch.float64)
    assert leverages(R).tolist() == [1, 1, 1]
    assert leverages(torch.zeros(2, 3)).tolist() == [0, 0, 0]


def test_a_sum_of_models_costs_the_root_of_their_number_less() -> None:
    """Without a graph: K clients that add σ/√K each have the ε of one that adds σ."""
    facts, others, votes, attendance = facts_of(random_clients("sc", N=16), Identity())
    guarantee, plain = Guarantee(delta=1e-5), Protection(update=Gaussian(std=8.0, clip=1.0))
    split = Protection(update=Gaussian(std=8.0 / math.sqrt(16), clip=1.0))
    found = masked_epsilon(split, guarantee, facts, MaskedView.of(others, votes), attendance)
    exact = gaussian_epsilon(math.sqrt(ROUNDS) * 2 / 8, 1e-5)
    assert exact <= found <= 1.001 * exact, "but for the rounding of uploads to a lattice"
    assert masked_epsilon(plain, guarantee, facts, MaskedView.of(others, votes), attendance) < found / 3


def test_noise_is_split_to_a_budget() -> None:
    facts, others, votes, attendance = facts_of(random_clients("snc"), APPNP())
    view = MaskedView.of(others, votes)
    stated = Protection(Gaussian(clip=1.0), Gaussian(clip=1.0), Gaussian(clip=1.0))
    for budget in (0.5, 8.0):
        guarantee = Guarantee(delta=1e-5, max_epsilon=budget)
        split = split_noise(stated, guarantee, facts, view, attendance)
        assert 0.999 * budget < masked_epsilon(split, guarantee, facts, view, attendance) <= budget
    assert masked_epsilon(stated, guarantee, facts, view, attendance) == math.inf
    with pytest.raises(InputError, match="noise must be split over bounded uploads"):
        split_noise(Protection(Gaussian(clip=1.0)), guarantee, facts, view, attendance)
    with pytest.raises(InputError, match="max_epsilon must be given where noise is split"):
        split_noise(stated, Guarantee(), facts, view, attendance)


def test_fewer_honest_clients_hide_less() -> None:
    _, others, votes, _ = facts_of(random_clients("snc"), APPNP())
    whole = MaskedView.of(others, votes)
    assert bool((whole.shared <= 1).all())
    assert float(whole.update[:6].sum()) == pytest.approx(1)
    dropped = MaskedView.of(others, votes, contributing=[k for k in range(10) if k != 2])
    told = MaskedView.of(others, votes, colluding=[2])
    for fewer in (dropped, told):
        assert fewer.update[0] == pytest.approx(1 / 5)
        assert fewer.shared[2] == fewer.update[2] == 1
    assert float(told.shared[[0, 1, 3, 4]].min()) >= float(whole.shared[[0, 1, 3, 4]].min())


def test_masked_sums_carry_the_noise_that_is_accounted_for() -> None:
    """K shares of σ/√K are noise of σ in the opened sum; fixed point adds nothing to be seen."""
    server, sites = met(8)
    ticket, sigma, size = Ticket("run", 0, "train"), 3.0, 40_000
    prepared(server, sites, [ticket])
    generator = torch.Generator().manual_seed(0)
    share = sigma / math.sqrt(8)
    values = {name: share * torch.randn(size, generator=generator, dtype=torch.float64) for name in sites}
    total = FixedPoint().decode(opened(server, sites, ticket, uploaded(sites, ticket, values)))
    assert float(total.std()) == pytest.approx(sigma, rel=4 / math.sqrt(2 * size))
    assert abs(float(total.mean())) < 4 * sigma / math.sqrt(size)
