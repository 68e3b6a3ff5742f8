"""Fixtures of tests about noise."""

from __future__ import annotations

import hashlib
from itertools import count

import pytest

from gfl_lightning.privacy.noise_key import NoiseKey


@pytest.fixture
def steady_keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are the same in every run and others in every test: what is measured under them is measured again."""
    number = count()

    def key() -> NoiseKey:
        name = f"{request.node.name} {next(number)}"
        return NoiseKey(hashlib.blake2b(name.encode(), digest_size=32).digest())

    monkeypatch.setattr(NoiseKey, "fresh", key)
