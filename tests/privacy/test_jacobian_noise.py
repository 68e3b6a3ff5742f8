"""Noise drawn after aggregation has the moments of entry-wise noise, in everything that is ever read of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gfl_lightning.privacy.jacobian_noise import JacobianNoise, JacobianNoiseSource, basis_of, entrywise

N, K, C, M, D = 6, 3, 2, 3, 7
SHAPES = {"W1": (M, D), "W2": (C, M)}
STD = 0.7
DRAWS = 12_000


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(hops: int) -> Tensor:
    R = normal(K, hops, N, seed=1)
    R[torch.arange(K), :, torch.arange(K)] = 0
    return R


def source(hops: int = 1) -> JacobianNoiseSource:
    return JacobianNoiseSource.of(STD, rows(hops), SHAPES, C, normal(4, D, seed=2))


def from_entries(hops: int, seed: int) -> JacobianNoise:
    """E_j for every client and every entry, mixed by R: the definition."""
    return entrywise(rows(hops), SHAPES, C, STD, lambda j: torch.Generator().manual_seed(seed * N + j), list(range(N)))


def close(found: Tensor, expected: Tensor) -> None:
    """Covariances estimated from DRAWS draws: their standard error is at most √2 of the scale over √DRAWS."""
    scale = float(expected.abs().max())
    assert float((found - expected).abs().max()) < 6 * 2**0.5 * scale / DRAWS**0.5


def covariance(samples: Tensor) -> Tensor:
    return samples.flatten(1).T @ samples.flatten(1) / len(samples)


@pytest.mark.parametrize("hops", [1, 2])
def test_joint_covariance_over_clients_and_hops(hops: int) -> None:
    """Cov(G_kl, G_k'l') = σ² Σ_j R_klj R_k'l'j in every entry; different entries are independent."""
    made, generator = source(hops), torch.Generator().manual_seed(0)
    draws = [made.draw(generator) for _ in range(DRAWS)]
    R = rows(hops).flatten(0, 1)
    for entry in ((0, 0, 0), (1, 2, 3)):
        close(covariance(torch.stack([d.first[(..., *entry)] for d in draws])), STD**2 * R @ R.T)
    close(covariance(torch.stack([d.rest["W2"][..., 1, 0, 2] for d in draws])), STD**2 * R @ R.T)
    across = torch.stack([torch.stack([d.first[0, 0, 0, 0, 0], d.first[0, 0, 1, 0, 0]]) for d in draws])
    close(covariance(across), STD**2 * float(R[0] @ R[0]) * torch.eye(2, dtype=torch.float64))


def test_reads_and_average_have_the_joint_moments_of_entrywise_noise() -> None:
    """What a client reads of its own samples, and what of G enters the averaged W1, inside and outside the basis."""
    made = source()
    x = normal(4, D, seed=2)[[0, 1, 2]][:, None, :]
    weight = normal(K, 1, C, seed=5)
    generator, outside = torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)
    ours, theirs = [], []
    for number in range(DRAWS):
        noise = made.draw(generator)
        average = noise.mixed(weight) + made.remainder(weight, None, outside)
        ours.append(torch.cat([noise.on(x)[:, 0, 0, 1], average[1]]))
        entries = from_entries(1, number)
        theirs.append(torch.cat([entries.on(x)[:, 0, 0, 1], entries.mixed(weight)[1]]))
    R = rows(1)[:, 0]
    variance = STD**2 * float((R.T @ weight[:, 0]).square().sum())
    exact = torch.diag(torch.full((D,), variance, dtype=torch.float64))
    close(covariance(torch.stack(ours))[K:, K:], exact)
    close(covariance(torch.stack(ours)), covariance(torch.stack(theirs)))


def test_remainders_of_single_clients_add_up_to_the_averages_law() -> None:
    made, weight = source(), normal(K, 1, C, seed=5)
    generator = torch.Generator().manual_seed(3)
    each = torch.stack([made.remainders(weight, None, generator)[:, 0] for _ in range(DRAWS)])
    V = made.basis
    assert V is not None
    outside = torch.eye(D, dtype=torch.float64) - V @ V.T
    R = rows(1)[:, 0]
    joint = STD**2 * (R @ R.T) * (weight[:, 0] @ weight[:, 0].T)
    close(covariance(each), torch.kron(joint, outside))


def test_places_choose_clients() -> None:
    made, some = source(), torch.tensor([2, 0])
    drawn = made.draw(torch.Generator().manual_seed(0))
    assert torch.equal(drawn.take(some).first, drawn.first[some])
    weight = normal(2, 1, C, seed=7)
    spread = torch.zeros(K, 1, C, dtype=torch.float64).index_copy_(0, some, weight)
    for place, coefficients in ((some, weight), (None, spread)):
        found = made.remainder(coefficients, place, torch.Generator().manual_seed(1))
        expected = made.remainder(spread, None, torch.Generator().manual_seed(1))
        assert torch.allclose(found, expected)


def test_the_basis_holds_the_samples_and_all_of_a_small_space_needs_none() -> None:
    x = normal(4, D, seed=2)
    V = basis_of(x)
    assert V is not None
    assert torch.allclose(V.T @ V, torch.eye(4, dtype=torch.float64))
    assert torch.allclose((x @ V) @ V.T, x)
    assert basis_of(normal(D, D, seed=0)) is None
    repeated = basis_of(x[[0, 0, 1]])
    assert repeated is not None
    assert torch.allclose((x[:2] @ repeated) @ repeated.T, x[:2])
