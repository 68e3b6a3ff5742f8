"""What is known of records, beside a blurred reading of one."""

from __future__ import annotations

import pytest
import torch

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
