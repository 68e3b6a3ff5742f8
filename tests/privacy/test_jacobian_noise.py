"""Noise drawn after aggregation has the moments of entry-wise noise, in everything that is ever read of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.federated.protection.aggregated_noise import AggregatedNoise
from gfl_lightning.federated.protection.jacobian_noise import JacobianNoise
from gfl_lightning.federated.protection.jacobian_noise_sources import entrywise
from gfl_lightning.models.encoders.encoder import SizedEncoder
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.noise_source import NoiseSource

N, K, C, M, D = 6, 3, 2, 3, 7
ENCODER = SizedEncoder(MLP((M,)), D, C)
STD = 0.7
DRAWS = 4_000


def numbers(seed: int) -> NoiseSource:
    return NoiseKey.of_seed(seed).source("test")


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(hops: int) -> Tensor:
    R = normal(K, hops, N, seed=1)
    R[torch.arange(K), :, torch.arange(K)] = 0
    return R


def samples(n: int = 1) -> Tensor:
    """Own samples of the clients ``[K, n, D]``."""
    return normal(K, n, D, seed=2)


def source(hops: int = 1, n: int | None = 1) -> AggregatedNoise:
    """A source that draws what is read of n samples each, or all of the noise."""
    return AggregatedNoise.of(STD, rows(hops), ENCODER, None if n is None else samples(n))


def from_entries(hops: int, seed: int) -> JacobianNoise:
    """E_j for every client and every entry, mixed by R: the definition."""
    return entrywise(Gaussian(STD), rows(hops), ENCODER, lambda j: numbers(seed * N + j), list(range(N)))


def close(found: Tensor, expected: Tensor, slack: float = 1.0) -> None:
    """Covariances estimated from DRAWS draws: their standard error is about √2 of the scale over √DRAWS."""
    scale = slack * float(expected.abs().max())
    assert float((found - expected).abs().max()) < 6 * 2**0.5 * scale / DRAWS**0.5


def covariance(samples: Tensor) -> Tensor:
    return samples.flatten(1).T @ samples.flatten(1) / len(samples)


@pytest.mark.parametrize("hops", [1, 2])
def test_all_of_the_noise_has_its_joint_covariance_over_clients_and_hops(hops: int) -> None:
    """Cov(G_kl, G_k'l') = σ² Σ_j R_klj R_k'l'j in every entry; different entries are independent."""
    made, generator = source(hops, None), numbers(0)
    draws = [made.draw(generator) for _ in range(DRAWS)]
    R = rows(hops).flatten(0, 1)
    for entry in ((0, 0, 0), (1, 2, 3)):
        close(covariance(torch.stack([d.first[(..., *entry)] for d in draws])), STD**2 * R @ R.T)
    close(covariance(torch.stack([d.rest["W2"][..., 1, 0, 2] for d in draws])), STD**2 * R @ R.T)
    across = torch.stack([torch.stack([d.first[0, 0, 0, 0, 0], d.first[0, 0, 1, 0, 0]]) for d in draws])
    close(covariance(across), STD**2 * float(R[0] @ R[0]) * torch.eye(2, dtype=torch.float64))


def whole(noise: JacobianNoise) -> Tensor:
    """The feature weight's part as far as it is drawn, ``[K, L, c, m, d]``."""
    return noise.parts(["W1"])["W1"]


def mixed(noise: JacobianNoise, weight: Tensor) -> Tensor:
    """Σ weight G of the feature weight's part."""
    return noise.mixed_into(torch.zeros(M, D, dtype=torch.float64), weight)


def read_by(noise: JacobianNoise, x: Tensor) -> Tensor:
    """G_k x of own samples for one hop, ``[K, c, n, m]``."""
    K, n, d = x.shape
    ((first, _),) = noise.reads(x.view(-1, d), torch.arange(K * n).view(K, n), "W2")
    return first


def seen(noise: JacobianNoise, x: Tensor) -> Tensor:
    """What the clients read of their own samples, ``[K, L, c, n, m]``, for any number of hops."""
    return torch.einsum("klomd,knd->klonm", whole(noise), x)


def reacting(read: Tensor) -> Tensor:
    """Coefficients ``[K, L, c]`` that depend on what was read, as those of local steps do."""
    return 0.5 + torch.tanh(2 * read.mean((3, 4))) + 0.3 * read[..., 0, 0].square()


@pytest.mark.parametrize(("hops", "n"), [(1, 1), (1, 2), (2, 1)])
def test_reads_and_what_enters_the_average_have_the_law_of_entrywise_noise(hops: int, n: int) -> None:
    """First and second moments of reads and average together, where the average reacts to the reads."""
    made, x = source(hops, n), samples(n)
    assert made.reads is not None
    later = numbers(1)
    ours, theirs = [], []
    for number in range(DRAWS):
        noise = made.draw(numbers(number))
        read = seen(noise, x)
        weight = reacting(read)
        average = mixed(noise, weight) + made.unread(weight, None, numbers(number), later)
        ours.append(torch.cat([read[:, :, 0, 0, 1].flatten(), average[1]]))
        entries = from_entries(hops, number + DRAWS)
        read = seen(entries, x)
        theirs.append(torch.cat([read[:, :, 0, 0, 1].flatten(), mixed(entries, reacting(read))[1]]))
    a, b = torch.stack(ours), torch.stack(theirs)
    scale = float(b.std(0).max())
    assert float((a.mean(0) - b.mean(0)).abs().max()) < 6 * scale * 2**0.5 / DRAWS**0.5
    close(covariance(a), covariance(b), slack=2.0)


def test_for_fixed_coefficients_the_average_is_white() -> None:
    """Σ b_k G_k with b known beforehand has the covariance Σ_o b_oᵀ Σ b_o times the identity, reads or no reads."""
    made, weight, later = source(), normal(K, 1, C, seed=5), numbers(1)
    R = rows(1)[:, 0]
    average = []
    for number in range(DRAWS):
        noise = made.draw(numbers(number))
        unread = made.unread(weight, None, numbers(number), later)
        average.append((mixed(noise, weight) + unread)[1])
    variance = STD**2 * float((R.T @ weight[:, 0]).square().sum())
    close(covariance(torch.stack(average)), variance * torch.eye(D, dtype=torch.float64))


def test_reads_are_inner_products_of_one_draw() -> None:
    drawn, x = source(n=2).draw(numbers(0)), samples(2)
    assert torch.allclose(read_by(drawn, x), seen(drawn, x)[:, 0])
    weight = normal(K, 1, C, seed=7)
    assert torch.allclose(mixed(drawn, weight), torch.einsum("klo,klomd->md", weight, whole(drawn)))
    some = torch.tensor([2, 0])
    assert torch.allclose(read_by(drawn.take(some), x[some]), read_by(drawn, x)[some])


def test_places_choose_clients() -> None:
    made, some, weight = source(), torch.tensor([2, 0]), normal(2, 1, C, seed=7)
    spread = torch.zeros(K, 1, C, dtype=torch.float64).index_copy_(0, some, weight)
    found, expected = (made.unread(w, places, numbers(0), numbers(1)) for w, places in ((weight, some), (spread, None)))
    assert torch.allclose(found, expected)


def test_clients_with_the_same_samples_and_neighbours_are_no_trouble() -> None:
    """M is singular then; reads of twins are equal, and nothing overflows."""
    R, x = rows(1), samples()
    R[1], x[1] = R[2], x[2]
    made = AggregatedNoise.of(STD, R, ENCODER, x)
    noise = made.draw(numbers(0))
    assert torch.allclose(read_by(noise, x)[1], read_by(noise, x)[2], atol=1e-6)
    later = (numbers(0), numbers(1))
    assert float(made.unread(normal(K, 1, C, seed=5), None, *later).abs().max()) < 100


def test_many_reads_are_drawn_as_everything() -> None:
    assert source(n=3).reads is None
    assert source(n=2).reads is not None


def test_noise_beyond_what_numbers_hold_is_refused() -> None:
    with pytest.raises(InputError, match="std must leave noise that 64 bits can hold"):
        AggregatedNoise.of(1e200, rows(1), ENCODER, samples(1))
