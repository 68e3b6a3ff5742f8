"""What a round costs beside the loop oracle, beside centralised training, and as clients grow in number."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import APPNP

from benchmarks.cases import cora_sized, grown, subcora_sized
from benchmarks.memory import in_fresh_process, peak_bytes
from benchmarks.timing import in_turns
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.sc import SC
from gfl_lightning.graphs.datasets.snc import SNC
from gfl_lightning.models.aggregators import appnp
from gfl_lightning.models.aggregators.aggregator import Aggregator
from gfl_lightning.models.encoders.encoder import Encoder
from gfl_lightning.models.encoders.linear import Linear
from gfl_lightning.models.encoders.mlp import MLP
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.protection import Protection
from gfl_lightning.privacy.randomise.once import RandomisedOnce, randomised
from gfl_lightning.privacy.randomise.priv_unit import PrivUnit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from oracle import Client, dense_powers, run_round


def our_round(
    graph: ClientGraph,
    local: LocalTraining,
    protection: Protection = Protection(),  # noqa: B008  # frozen
    encoder: Encoder = MLP(),  # noqa: B008
    aggregator: Aggregator = appnp.APPNP(),  # noqa: B008
) -> Callable[[], None]:
    """A program that makes the next round each time it is called."""
    federation = Federation(graph, encoder, aggregator, local=local, protection=protection)
    state = federation.start()

    def run() -> None:
        nonlocal state
        state, _ = federation.round(state)

    return run


def oracle_round(graph: ClientGraph, local: LocalTraining) -> Callable[[], None]:
    """The first round of the same federation by the loop oracle."""
    federation = Federation(graph, local=local)
    clients = [Client(graph, k, federation.encoder) for k in range(graph.num_clients)]
    gamma = federation.aggregator.gamma
    A = torch.tensordot(gamma.to(graph.x), dense_powers(graph, len(gamma) - 1), 1)[None]
    W, training = federation.start().weights, federation.schedule.who_trains(0).tolist()
    everyone, batches = list(range(graph.num_clients)), federation.schedule.batches_by_client(0)
    return lambda: run_round(clients, A, W, everyone, training, batches, local.lr)


def central_step(graph: ClientGraph) -> Callable[[], None]:
    """One full-batch step of a two-layer MLP and PyG's APPNP, its normalisation cached."""
    d, c = graph.num_features, graph.num_classes
    encoder = nn.Sequential(nn.Linear(d, 64, bias=False), nn.ReLU(), nn.Linear(64, c, bias=False))
    propagate = APPNP(10, 0.1, cached=True)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    train = graph.mask(Split.TRAIN)

    def run() -> None:
        optimizer.zero_grad()
        logits = propagate(encoder(graph.x), graph.edge_index)
        nn.functional.cross_entropy(logits[train], graph.y[train]).backward()
        optimizer.step()

    return run


def against_oracle(graph: ClientGraph, local: LocalTraining, repeats: int) -> float:
    """How many times faster than the loop oracle."""
    ours, theirs = in_turns(our_round(graph, local), oracle_round(graph, local), repeats, firsts_per_turn=20)
    return theirs / ours


def against_central(graph: ClientGraph, local: LocalTraining) -> float:
    """Time of a round as a fraction of a centralised step's."""
    ours, theirs = in_turns(our_round(graph, local), central_step(graph), repeats=60, warm_up=10)
    return ours / theirs


def noise_cost(graph: ClientGraph, local: LocalTraining) -> float:
    """Time of a round with noise on representations and Jacobians over that of one without."""
    noise = Protection(hidden=Gaussian(0.5), jacobian=Gaussian(0.5))
    plain, noisy = in_turns(our_round(graph, local), our_round(graph, local, noise), repeats=60, warm_up=10)
    return noisy / plain


def randomised_cost(graph: ClientGraph, encoder: Encoder, aggregator: Aggregator, dimensions: int) -> float:
    """Time of a round on records that were randomised once over that of a plain one on the records themselves."""
    local, once = LocalTraining(), RandomisedOnce(features=PrivUnit(dimensions))
    records = once.heard(randomised(graph, once, np.random.default_rng(0)), aggregator.gamma)
    private = our_round(records, local, encoder=encoder, aggregator=aggregator)
    plain, ours = in_turns(our_round(graph, local), private, repeats=60, warm_up=10)
    return ours / plain


def cora_peak() -> int:
    """Peak bytes of preparing and running rounds on the Cora-sized case, above the data."""
    graph = cora_sized()

    def work() -> None:
        run = our_round(graph, LocalTraining())
        for _ in range(5):
            run()

    return peak_bytes(work)


def growth_peak(N: int) -> int:
    """Peak bytes of making N clients and running rounds."""

    def work() -> None:
        run = our_round(grown(N), LocalTraining())
        for _ in range(3):
            run()

    return peak_bytes(work)


def measure() -> dict[str, float]:
    """Every figure of the method's rounds."""
    local = LocalTraining()
    figures = {
        "subcora_vs_oracle": against_oracle(subcora_sized(), local, 2),
        "subcora_vs_central": against_central(subcora_sized(), local),
        "cora_vs_central": against_central(cora_sized(), local),
        "noise_cost": noise_cost(subcora_sized(), local),
        "randomised_round": randomised_cost(cora_sized(), Linear(), appnp.APPNP(0.01, 40), 256),
        "randomised_mlp_round": randomised_cost(cora_sized(), MLP(), appnp.APPNP(), 128),
        "cora_peak_mb": in_fresh_process(cora_peak) / 1e6,
        "snc_vs_oracle": against_oracle(SNC().graph, LocalTraining(0.2, 10), 2),
        "sc_vs_oracle": against_oracle(SC().graph, LocalTraining(0.2, 10, 5), 2),
    }
    memory = {N: in_fresh_process(growth_peak, N) for N in (1_000, 10_000, 100_000)}
    small, large = our_round(grown(10_000), local), our_round(grown(100_000), local)
    ten_thousand, hundred_thousand = in_turns(small, large, repeats=7, firsts_per_turn=3)
    figures["growth_time"] = hundred_thousand / ten_thousand / 10
    figures["growth_memory"] = memory[100_000] / memory[10_000] / 10
    figures["growth_peak_gb"] = memory[100_000] / 1e9
    print("growth: " + ", ".join(f"{N} clients {peak / 1e9:.2f} GB" for N, peak in memory.items()))
    return figures
