"""What the last bits of an upload tell: everything where floats are added, nothing on a lattice."""

from __future__ import annotations

import math

import pytest
import torch
from graph_builders import nodes
from torch import Tensor

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.gradient_norms import Compensation, gradient_norms
from gfl_lightning.federated.protection.clipping import clipped_rows
from gfl_lightning.federated.protection.protected_messages import protected
from gfl_lightning.federated.protocol.messages import RepresentationUpload
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.gaussian import gaussian_epsilon
from gfl_lightning.privacy.lattice import ROUNDING, on_lattice, rounded, spacing
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.mechanisms.steps import StepNoise
from gfl_lightning.privacy.noise_key import NoiseKey
from gfl_lightning.privacy.protection import Protection

pytestmark = pytest.mark.usefixtures("steady_keys")

TRIALS, ENTRIES = 1_000, 256
STD, DELTA = 4.0, 1e-5
EPSILON = gaussian_epsilon(1 / STD, DELTA)
NEIGHBOURS = [torch.zeros(TRIALS, ENTRIES), torch.full((TRIALS, ENTRIES), 1 / 16)]
"""Uploads of norm 0 and 1: with σ = 4 they are private with ε = 1.0."""


def told_apart(zero: Tensor, one: Tensor) -> float:
    """The least δ of a guarantee with that ε, by one test: is any entry no multiple of 2⁻²⁸?

    1/16 + e in single precision always is one. e itself mostly is not where it is below 1/32, as one of 256 often is.
    """
    fine = [(values.double() * 2**28 % 1 != 0).any(1).double().mean() for values in (zero, one)]
    return float(fine[0] - math.exp(EPSILON) * fine[1])


def test_sums_of_single_precision_fall_to_the_attack() -> None:
    """So that the attack is known to work."""
    generator = torch.Generator().manual_seed(0)
    zero, one = (u + STD * torch.randn(u.shape, generator=generator) for u in NEIGHBOURS)
    assert told_apart(zero, one) > 0.5


def test_the_mechanism_does_not() -> None:
    source = NoiseKey.fresh().source("attack")
    mechanism: Mechanism = Gaussian(STD, 1.0)
    zero, one = (mechanism.released(u, source) for u in NEIGHBOURS)
    assert zero.dtype == torch.float32
    assert told_apart(zero, one) <= DELTA
    assert told_apart(one, zero) <= DELTA


def test_uploads_of_clients_and_of_the_engine_do_not() -> None:
    """What leaves is on the lattice, whatever the value."""
    noisy, key = Protection(hidden=Gaussian(STD, 1.0)), NoiseKey.fresh()
    for value in NEIGHBOURS:
        upload = protected(RepresentationUpload(0, value[0]), noisy, {}, key.source("upload"))
        assert isinstance(upload, RepresentationUpload)
        steps = upload.h.double() / spacing(STD)
        assert torch.equal(steps, steps.round())
    graph = nodes(3, [(0, 1), (1, 2)])
    exchange = Federation(graph, MLP((5,)), protection=noisy, noise_key=key).start().exchange
    assert exchange is not None
    released = exchange.uploaded_h.double() / spacing(STD)
    assert torch.equal(released, released.round())


def test_every_value_has_the_same_results_and_the_same_law() -> None:
    """Neighbours differ by whole steps: their results are shifted, and the residues of steps are uniform for both."""
    grid, source = spacing(1.0), NoiseKey.of_seed(1).source("residues")
    many = 20_000
    for value in (0.0, 1.0, 0.3333333, 7e-9):
        noise = source.normal((many,))
        released = on_lattice(torch.full((many,), value, dtype=torch.float64), noise, grid) / grid
        assert torch.equal(released, released.round())
        counts = torch.bincount(released.long() % 16, minlength=16).double()
        assert float(((counts - many / 16) ** 2 / (many / 16)).sum()) < 45  # χ² of 15, one in 10,000


def test_rounding_moves_two_values_by_no_more_than_its_sensitivity() -> None:
    generator = torch.Generator().manual_seed(2)
    for std, entries in ((1.0, 10), (0.37, 1000), (1e-6, 50)):
        grid = spacing(std)
        u = torch.randn(entries, generator=generator, dtype=torch.float64) * std
        v = u + torch.randn(entries, generator=generator, dtype=torch.float64) * grid
        still = torch.zeros(entries, dtype=torch.float64)
        moved = float((on_lattice(u, still, grid) - on_lattice(v, still, grid)).norm())
        assert moved <= float(rounded((u - v).norm(), entries, grid))
        assert 2**-25 * std < grid <= 2**-24 * std


def test_bounds_hold_in_single_precision() -> None:
    """The norm of a clipped upload, taken exactly, is within the share that the account adds."""
    generator = torch.Generator().manual_seed(3)
    shapes = [torch.randn(n, generator=generator) * torch.logspace(-6, 6, n) for n in (10, 1_000, 100_000)]
    beside_one = torch.full((200_000,), 2.0**-12.4)  # each square vanishes beside 1, all of them are a hundredth
    beside_one[0] = 1.0
    for values in [*shapes, beside_one, torch.full((200_000,), 1e-3), torch.full((50,), 1e-20)]:
        upload = protected(
            RepresentationUpload(0, values),
            Protection(hidden=Gaussian(clip=0.7)),
            {},
            NoiseKey.of_seed(0).source("none"),
        )
        assert isinstance(upload, RepresentationUpload)
        assert float(upload.h.double().norm()) <= float(rounded(torch.tensor(0.7).double(), 0, 0.0))
        (row,) = clipped_rows(values[None], 0.7)
        assert float(row.double().norm()) <= float(rounded(torch.tensor(0.7).double(), 0, 0.0))


def test_a_bound_below_which_squares_vanish_is_refused() -> None:
    for make in (Gaussian, StepNoise):
        with pytest.raises(InputError, match="clip must be at least 1e-12, as squares of less vanish, got 1e-29"):
            make(clip=1e-29)


@pytest.mark.parametrize("apart", [1e-3, 1e-5, 1e-7])
def test_gradients_whose_parts_cancel_are_not_taken_for_smaller_than_they_are(apart: float) -> None:
    """δ xᵀ and r ∇C_k a thousand times the bound and nearly opposite: what is left of their squares is rounding."""
    generator = torch.Generator().manual_seed(4)
    delta, x, r = (1e3 * torch.randn(40, 1, 1, generator=generator) for _ in range(3))
    exact = -(delta.double() * x.double()) / r.double() * (1 + apart)
    part = exact.float()[:, None]  # [K, c, m, d]
    found = gradient_norms(x, delta, r, 0 * delta, Compensation.of(part), None)
    truth = (delta.double() * x.double() + r.double() * part[:, 0].double()).abs()
    assert bool((found[..., None].double() * (1 + ROUNDING) >= truth).all())
