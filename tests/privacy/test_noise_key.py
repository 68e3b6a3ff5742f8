"""Noise comes from a secret and from what it hides: never the same twice, of the right law, and kept with care."""

from __future__ import annotations

import itertools
import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_builders import random_clients
from protections import protection
from scipy import stats

from gfl_lightning.checks import InputError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.noise_key import NoiseKey, digest
from gfl_lightning.privacy.noise_source import NoiseSource


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_have_their_laws(dtype: torch.dtype) -> None:
    source = NoiseKey.of_seed(1).source("law")
    normal, uniform = source.normal((200_001,), dtype), source.uniform((200_000,), dtype)
    assert normal.dtype == uniform.dtype == dtype
    assert stats.kstest(normal.double().numpy(), "norm").pvalue > 1e-3
    assert stats.kstest(uniform.double().numpy(), "uniform").pvalue > 1e-3
    halves = normal[:100_000].double(), normal[100_000:200_000].double()
    for one, other in (halves, (halves[0][:-1], halves[0][1:])):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.015


def test_a_stream_is_the_ciphers() -> None:
    """The first block of ChaCha20 under a key of zeros, as its standard prints it (RFC 8439, A.1)."""
    first = NoiseSource(bytes(32)).words(2)
    assert first.numpy().tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_a_stream_depends_on_every_bit_of_its_key() -> None:
    """No 32 of them decide it, as they do in torch's generator."""
    keys = [bytes(32), *((1 << bit).to_bytes(32, "little") for bit in range(256))]
    assert len({tuple(NoiseSource(key).words(2).tolist()) for key in keys}) == 257
    secrets = [NoiseKey(key).source("hidden", 1).words(2).tolist() for key in keys]
    assert len(set(map(tuple, secrets))) == 257


def test_numpy_draws_from_the_key_too() -> None:
    key = NoiseKey.fresh()
    one, same, other = (key.source("records", t).generator().normal(size=1000) for t in (0, 0, 1))
    assert (one == same).all()
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2
    assert stats.kstest(one, "norm").pvalue > 1e-4


def test_no_two_draws_are_the_same() -> None:
    """Rounds, clients, releases, W̄ and keys each tell draws apart; a seed's key only what it is told by number."""
    W, moved = {"W": torch.zeros(3)}, {"W": torch.tensor([0.0, 0.0, 1e-45])}
    keys = [NoiseKey.fresh(), NoiseKey.fresh()]
    told = itertools.product(keys, ("hidden", "update"), (0, 1, 2**33), (0, 1, 2**32), (digest(W), digest(moved)))
    drawn = {tuple(key.source(what, t, k, hides=W).words(2).tolist()) for key, what, t, k, W in told}
    assert len(drawn) == 2 * 2 * 3 * 3 * 2
    seeded = NoiseKey.of_seed(3)
    one, other = (seeded.source("hidden", 1, hides=digest(w)).normal((4,)) for w in (W, moved))
    assert torch.equal(one, other)


def test_a_digest_tells_values_shapes_and_types_apart() -> None:
    zeros = torch.zeros(4)
    parts = [zeros, zeros.view(2, 2), zeros.double(), -zeros, {"a": zeros}, {"b": zeros}, 0, "0", b"0", None, 0.0]
    assert len({digest(part) for part in parts}) == len(parts)
    assert digest("ab", "c") != digest("a", "bc")
    transposed = torch.arange(6.0).view(2, 3).T
    assert digest(transposed) == digest(transposed.contiguous())


def test_a_key_is_kept_in_a_file_that_its_owner_alone_reads(tmp_path: Path) -> None:
    key = NoiseKey.fresh()
    file = key.save(tmp_path / "run" / "checkpoints")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert NoiseKey.load(file) == key
    assert key.secret.hex() not in repr(key) + key.name + file.name
    for folder in (file.parent, file.parent.parent, file.parent / "deeper"):
        assert NoiseKey.find(key.name, folder) == key
    assert NoiseKey.find(NoiseKey.fresh().name, file.parent) is None
    os.chmod(file, 0o640)
    with pytest.raises(InputError, match=r"noise key must be a file that its owner alone may read \(chmod 600\), got"):
        NoiseKey.load(file)
    file.write_text("gfl-lightning noise key\n1234\n")
    os.chmod(file, 0o600)
    with pytest.raises(InputError, match="noise key must be a file that a fit has written, got"):
        NoiseKey.load(file)


EVERYTHING = {
    "hidden_std": 0.2,
    "hidden_clip": 0.4,
    "jacobian_std": 0.1,
    "jacobian_clip": 0.8,
    "update_std": 0.05,
    "update_clip": 0.1,
}


def test_two_branches_of_a_run_share_no_noise_on_different_values() -> None:
    """From the same state, with another rate or number of steps, the difference of updates is no difference of signals.

    What is released again unchanged, ĥ at the same W̄, has the same noise: it tells nothing more.
    """
    key, noisy = NoiseKey.fresh(), protection(**EVERYTHING)

    def branch(lr: float, steps: int, bounds: bool) -> tuple[torch.Tensor, torch.Tensor]:
        used = noisy if bounds else replace(noisy, update=replace(noisy.update, std=0.0))
        local = LocalTraining(lr, steps)
        made = Federation(random_clients("dnc"), MLP((5,)), local=local, protection=used, noise_key=key)
        state = made.start()
        assert state.exchange is not None
        return state.exchange.uploaded_h, made.round(state)[0].weights["W1"]

    first_h, first = branch(0.3, 3, True)
    for lr, steps in ((0.30001, 3), (0.3, 4)):
        again_h, other = branch(lr, steps, True)
        assert torch.equal(again_h, first_h)
        signal = (branch(lr, steps, False)[1] - branch(0.3, 3, False)[1]).abs().mean()
        assert float((other - first).abs().mean()) > 0.01 > float(signal)
    assert torch.equal(branch(0.3, 3, True)[1], first)


def test_a_federation_draws_anew_unless_it_is_told_a_seed() -> None:
    def uploaded(key: NoiseKey | None) -> torch.Tensor:
        noisy = protection(hidden_std=0.2)
        exchange = Federation(random_clients("dnc"), MLP((5,)), protection=noisy, noise_key=key).start().exchange
        assert exchange is not None
        return exchange.uploaded_h

    assert not torch.allclose(uploaded(None), uploaded(None))
    assert torch.equal(uploaded(NoiseKey.of_seed(1)), uploaded(NoiseKey.of_seed(1)))
