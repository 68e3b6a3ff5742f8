"""What is known of records, beside a blurred reading of one."""

from __future__ import annotations

import pytest
import torch

from gfl_lightning.attacks.decoder import STRENGTHS, decode
from gfl_lightning.attacks.prior import sharpened, unscaled
from gfl_lightning.attacks.scores import cosine


def test_the_posterior_mean_is_closer_than_the_reading_and_than_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(0.1, 3.0, 60)
    draw = lambda count: 1 + spread * torch.randn(count, 60, generator=generator)  # noqa: E731
    public, secret = draw(2000), draw(200)
    readings = secret + 1.5 * torch.randn(secret.shape, generator=generator)
    found = torch.stack([sharpened(one, 1.5**2, public) for one in readings])
    error = (found - secret).square().mean()
    best = (spread.square() * 1.5**2 / (spread.square() + 1.5**2)).mean()  # of the posterior, in closed form
    assert float(error) == pytest.approx(float(best), rel=0.05)
    assert error < (readings - secret).square().mean()
    assert error < (public.mean(0) - secret).square().mean()


def test_a_bound_is_undone_by_the_length_of_records() -> None:
    generator = torch.Generator().manual_seed(1)
    public, x = torch.randn(500, 400, generator=generator), torch.randn(400, generator=generator)
    noisy = 0.1 * x + 0.02 * torch.randn(400, generator=generator)
    found, variance = unscaled(noisy, 0.02**2, public)
    assert float(found.norm()) == pytest.approx(float(public.norm(dim=1).mean()), rel=0.1)
    assert variance == pytest.approx(0.04, rel=0.25)
    assert cosine(found, x) > 0.97
    nothing, more = unscaled(0.02 * torch.randn(400, generator=generator), 0.03**2, public)
    assert not nothing.any()
    assert torch.equal(sharpened(nothing, more, public), public.mean(0))


def test_a_single_record_tells_what_to_expect_where_all_is_noise() -> None:
    generator = torch.Generator().manual_seed(2)
    own = (torch.rand(1, 200, generator=generator) < 0.1).float()
    reading = 1e3 * torch.randn(200, generator=generator)
    assert set(sharpened(reading, 1e6, own).topk(int(own.sum())).indices.tolist()) == set(
        own[0].nonzero()[:, 0].tolist()
    )
    assert torch.equal(sharpened(reading, 0.0, own), reading)


@pytest.mark.parametrize(("P", "f"), [(30, 100), (60, 20)])
def test_a_decoder_of_noise_gives_the_mean_record(P: int, f: int) -> None:
    """More numbers than records: leaving one out must count the mean too, or noise is taken for a fit."""
    generator = torch.Generator().manual_seed(3)
    x, phi = torch.randn(P, 50, generator=generator) + 0.5, torch.randn(P + 1, f, generator=generator)
    assert cosine(decode(phi[:P], x, phi[P]), x.mean(0)) > 0.99


def test_the_strength_of_a_decoder_is_that_of_the_least_error_in_leaving_one_out() -> None:
    generator = torch.Generator().manual_seed(4)
    phi = torch.randn(12, 5, generator=generator).double()
    x = phi @ torch.randn(5, 3, generator=generator).double() + 2 * torch.randn(12, 3, generator=generator).double()
    centred = (phi - phi.mean(0)) / phi.std(0, correction=0)
    scale = centred.square().sum(1).mean()

    def fitted(rows: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = centred[rows] - centred[rows].mean(0), x[rows] - x[rows].mean(0)
        D = torch.linalg.solve(a.T @ a + strength * scale * torch.eye(5).double(), a.T @ b)
        return D, x[rows].mean(0) - centred[rows].mean(0) @ D

    errors = []
    for strength in STRENGTHS.double():
        left_out = [fitted(torch.arange(12) != i, strength) for i in range(12)]
        errors.append(sum(float((centred[i] @ D + b - x[i]).square().sum()) for i, (D, b) in enumerate(left_out)))
    D, b = fitted(torch.arange(12) >= 0, STRENGTHS.double()[min(range(len(errors)), key=errors.__getitem__)])
    observed = torch.randn(5, generator=generator).double()
    expected = (observed - phi.mean(0)) / phi.std(0, correction=0) @ D + b
    torch.testing.assert_close(decode(phi, x, observed), expected)
