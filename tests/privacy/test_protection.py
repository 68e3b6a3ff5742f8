"""Protection and guarantee are checked; clipping bounds norms and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from protections import protection

from gfl_lightning.checks import InputError
from gfl_lightning.federated.protection.clipping import clip_scale, clipped_rows
from gfl_lightning.privacy.guarantee import Guarantee
from gfl_lightning.privacy.protection import Protection


def test_clipping_bounds_long_rows_and_leaves_short_ones() -> None:
    rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    clipped, norms = clipped_rows(rows, 1.5), rows.norm(dim=1)
    assert float(clipped.norm(dim=1).max()) <= 1.5 * (1 + 1e-12)
    assert torch.equal(clipped[norms <= 1.5], rows[norms <= 1.5])
    assert torch.allclose(clipped[norms > 1.5], 1.5 * rows[norms > 1.5] / norms[norms > 1.5, None])


def test_what_is_not_finite_counts_for_nothing() -> None:
    assert clip_scale(torch.tensor([0.0, 2.0, math.inf, math.nan]), 1.0).tolist() == [1.0, 0.5, 0.0, 0.0]


def test_the_default_does_nothing() -> None:
    assert Protection().is_inert
    assert not protection(hidden_clip=5.0).is_inert
    assert not protection(step_clip=5.0).is_inert


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_std": -0.1}, "std must be finite and at least 0, got -0.1"),
        ({"jacobian_std": math.inf}, "std must be finite and at least 0, got inf"),
        ({"update_std": math.nan}, "std must be finite and at least 0, got nan"),
        ({"hidden_clip": 0.0}, "clip must be positive, got 0.0"),
        ({"update_clip": -1.0}, "clip must be positive, got -1.0"),
        ({"noise_multiplier": 1.0}, "clip must be finite where noise_multiplier is not 0"),
        ({"unit": "person"}, "unit must be one of client, sample, got 'person'"),
    ],
)
def test_protection_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        protection(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, r"delta must lie in \(0, 1\), got 0.0"),
        ({"neighbours": "add"}, "neighbours must be one of replace, zero_out, got 'add'"),
        ({"accountant": "gdp"}, "accountant must be one of rdp, prv, got 'gdp'"),
        ({"max_epsilon": 0.0}, "max_epsilon must be positive and finite, got 0.0"),
        ({"calibrate": True}, "max_epsilon must be given where calibrate is true, got None"),
    ],
)
def test_guarantee_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Guarantee(**options)
