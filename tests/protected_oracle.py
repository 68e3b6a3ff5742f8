"""Protected rounds by the loop oracle: every client bounds its own upload and adds its own noise, entry by entry.

From the engine it takes what is random: who takes part, the batches, and the key of the noise, which must be that of a
seed. It knows no lattice: the engine is within its spacing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from oracle import Client, bounded, dense_powers, run_round
from torch import Tensor

from gfl_lightning.federated.federation import Federation
from gfl_lightning.models.encoders.encoder import Weights
from gfl_lightning.privacy.exact_normal import FINENESS, rounded_normal
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.mechanisms.mechanism import Mechanism
from gfl_lightning.privacy.noise_source import NoiseSource
from gfl_lightning.privacy.protection import Protection


def protected_trajectory(federation: Federation, rounds: int) -> Weights:
    """W̄ after some rounds; uploads that stand keep their noise.

    Gaussian noise on Jacobians is known entry by entry only where some uploads may be old; elsewhere the engine draws
    another with the same law.
    """
    graph, noisy, key = federation.graph, federation.protection, federation.noise_key
    assert key.reproducible
    clients = [Client(graph, k, federation.encoder) for k in range(graph.num_clients)]
    powers = dense_powers(graph, len(federation.aggregator.gamma) - 1)
    if not federation.aggregator.learnable:
        powers = torch.tensordot(federation.aggregator.gamma.to(powers), powers, 1)[None]
    W, local = federation.start().weights, federation.local
    for number in range(rounds):
        hidden = _drawn(noisy.hidden, (graph.num_clients, 3), key.source("hidden", number))

        def protect(client: Client, t: int = number, noise: Tensor = hidden, W: Weights = W) -> None:
            client.h, client.jacobian = _shared(client, noisy, W)
            client.h = client.h + noise[client.number]
            own = key.source("jacobian", t, client.number)
            for name, part in client.jacobian.items():
                client.jacobian[name] = part + _drawn(noisy.jacobian, tuple(part.shape), own)

        training = federation.schedule.who_trains(number).tolist()
        update = key.source("update", number)
        W = run_round(
            clients,
            powers,
            W,
            federation.schedule.who_shares(number).tolist(),
            training,
            federation.schedule.batches_by_client(number),
            local.lr,
            compensated=federation.estimator == "compensated",
            protect=protect,
            update_clip=noisy.update.clip,
            update_noise={n: _averaged(noisy.update, len(training), tuple(w.shape), update) for n, w in W.items()},
            private_steps=_private_steps(federation, W, number),
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            proximal=local.proximal,
        )
    return W


def _drawn(mechanism: Mechanism, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
    """Noise on one upload."""
    if not mechanism.is_noisy:
        return torch.zeros(shape, dtype=torch.float64)
    return mechanism.draw(shape, source)


def _averaged(mechanism: Mechanism, K: int, shape: tuple[int, ...], source: NoiseSource) -> Tensor:
    """What the noise of K models adds to their mean; the engine draws a Gaussian sum at once."""
    if isinstance(mechanism, Gaussian):
        return _drawn(mechanism, shape, source) / math.sqrt(K)
    return torch.stack([_drawn(mechanism, shape, source) for _ in range(K)]).mean(0)


def _shared(client: Client, noisy: Protection, W: Weights) -> tuple[Tensor, Weights]:
    """A client's bounded ĥ and ∇ĥ: its mean bounded, or the mean of bounded samples."""
    assert client.h is not None
    assert client.jacobian is not None
    if noisy.unit == "client":
        return bounded({"h": client.h}, noisy.hidden.clip)["h"], bounded(client.jacobian, noisy.jacobian.clip)
    whole = client.shared_x
    parts = []
    for s in range(len(whole)):
        client.shared_x = whole[s : s + 1]
        client.share(W)
        parts.append((bounded({"h": client.h}, noisy.hidden.clip)["h"], bounded(client.jacobian, noisy.jacobian.clip)))
    client.shared_x = whole
    mean_h = torch.stack([h for h, _ in parts]).mean(0)
    return mean_h, {name: torch.stack([J[name] for _, J in parts]).mean(0) for name in parts[0][1]}


def _private_steps(federation: Federation, W: Weights, t: int) -> dict[int, dict[str, Any]]:
    """DP-SGD's options by client: expected batch, and the noise that the client's place gets in each step."""
    steps, training = federation.protection.steps, federation.schedule.training
    if steps.is_inert:
        return {}
    clip, z = steps.clip, steps.noise_multiplier
    draws = []
    for step in range(federation.local.steps):
        source = federation.noise_key.source("step", t, step)
        draws.append(
            {n: rounded_normal((len(training), *w.shape), source).double() / 2**FINENESS for n, w in W.items()}
        )
    options = {}
    for place, (client, count) in enumerate(zip(training.clients.tolist(), training.counts.tolist(), strict=True)):
        b = min(count, federation.local.batch_size or count)
        noise = [{name: z * clip / b * part[place] for name, part in draw.items()} for draw in draws]
        options[client] = {"step_clip": clip, "expected_batch": b, "step_noise": noise}
    return options
