"""The baselines through the trainer of rounds, each against a training loop that knows nothing of this package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from graph_builders import random_clients
from lit_types import Given
from pytorch_lightning.callbacks import Callback, EMAWeightAveraging
from torch import Tensor, nn
from torch.nn import functional as F

from gfl_lightning.baselines.networks.appnp_net import APPNPNet
from gfl_lightning.baselines.networks.architecture import Architecture
from gfl_lightning.baselines.networks.gat import GAT
from gfl_lightning.baselines.networks.gcn import GCN
from gfl_lightning.baselines.networks.graph_sage import GraphSAGE
from gfl_lightning.checks import InputError
from gfl_lightning.engine.engine import DivergedError
from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.client_graph import ClientGraph, Split
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.datasets.dnc import DNC
from gfl_lightning.lit.central import Central
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.local_mlps import LocalMLPs
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.lit.rounds import FederatedTrainer
from gfl_lightning.models.encoders.encoder import Weights

Fit = Callable[..., FederatedTrainer]
ARCHITECTURES: dict[str, Architecture] = {
    "appnp": APPNPNet(),
    "gcn": GCN(hidden=16),
    "gat": GAT(hidden=16),
    "sage": GraphSAGE(hidden=16),
}


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    def run(
        module: RoundModule, data: DataSet, rounds: int, ckpt_path: Path | None = None, **options: Any
    ) -> FederatedTrainer:
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = FederatedTrainer(max_steps=rounds, accelerator="cpu", default_root_dir=tmp_path, **quiet, **options)
        trainer.fit(module, data, ckpt_path=ckpt_path)
        return trainer

    return run


def nodes(weighted: bool = False, dtype: torch.dtype = torch.float32) -> ClientGraph:
    """A small graph with one sample per client, whose rows are not in the order of the clients."""
    graph = random_clients("dnc", N=14, dtype=dtype)
    rows = torch.randperm(14, generator=torch.Generator().manual_seed(5))
    columns = {name: getattr(graph, name)[rows] for name in ("x", "y", "client", "split", "shared")}
    return ClientGraph(
        **columns, edge_index=graph.edge_index, num_classes=3, edge_weight=graph.edge_weight if weighted else None
    )


def clients() -> ClientGraph:
    return random_clients("sc", dtype=torch.float32)


def same_bits(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def snapshot(module: RoundModule) -> Weights:
    return {name: weight.clone() for name, weight in module.current_weights().items()}


class PlainGNN(nn.Module):
    """PyG's layers with their default handling of edges."""

    def __init__(self, architecture: str, weights: Weights) -> None:
        super().__init__()
        kinds: dict[str, tuple[nn.Module, nn.Module]] = {
            "gcn": (pyg.GCNConv(6, 16, bias=False), pyg.GCNConv(16, 3, bias=False)),
            "gat": (pyg.GATConv(6, 2, 8, bias=False), pyg.GATConv(16, 3, 1, bias=False)),
            "sage": (pyg.SAGEConv(6, 16, bias=False), pyg.SAGEConv(16, 3, bias=False)),
        }
        self.first, self.second = kinds[architecture]
        self.activation = F.elu if architecture == "gat" else F.relu
        self.load_state_dict(weights)

    def forward(self, graph: ClientGraph) -> Tensor:
        row = graph.client.argsort()
        edges = row[graph.edge_index]
        return self.second(self.activation(self.first(graph.x, edges)), edges)


@pytest.mark.parametrize("architecture", ["gcn", "gat", "sage"])
def test_is_plain_gradient_descent(fit: Fit, architecture: str) -> None:
    graph = nodes()
    module = Central(6, 3, ARCHITECTURES[architecture], lr=0.2, seed=3)
    plain = PlainGNN(architecture, snapshot(module))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.2)
    train, val = graph.mask(Split.TRAIN), graph.mask(Split.VAL)
    best = (float("inf"), 0, {})
    for number in range(1, 31):
        optimizer.zero_grad()
        F.cross_entropy(plain(graph)[train], graph.y[train]).backward()
        optimizer.step()
        val_loss = F.cross_entropy(plain(graph)[val], graph.y[val]).item()
        if val_loss < best[0]:
            best = (val_loss, number, {n: p.detach().clone() for n, p in plain.named_parameters()})
    fit(module, Given(graph), 30)
    expected = {name: parameter.detach() for name, parameter in plain.named_parameters()}
    torch.testing.assert_close(module.current_weights(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(module.predict_logits(), plain(graph).detach(), rtol=1e-4, atol=1e-6)
    assert module.best.round == best[1]
    assert module.best.val_loss == pytest.approx(best[0], rel=1e-5)
    module.use_best()
    torch.testing.assert_close(module.current_weights(), best[2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_appnp_is_gfl_with_one_local_step(fit: Fit, weighted: bool) -> None:
    data = Given(nodes(weighted))
    central, federated = Central(6, 3, lr=0.3, seed=4), GFL(6, 3, local=LocalTraining(0.3, 1), seed=4)
    assert torch.equal(central.get_parameter("W1"), federated.get_parameter("W1"))
    for module in (central, federated):
        fit(module, data, 15)
    for name in ("W1", "W2"):
        torch.testing.assert_close(
            central.get_parameter(name).detach(), federated.get_parameter(name).detach(), rtol=1e-4, atol=1e-6
        )
    assert central.best.round == federated.best.round
    assert central.round_metrics["val_loss"] == pytest.approx(federated.round_metrics["val_loss"], rel=1e-5)
    assert set(central.totals.values()) == {0}


def test_double_precision_reaches_the_network_and_its_data(fit: Fit) -> None:
    graph = nodes(dtype=torch.float64)
    module = Central(6, 3, lr=0.3)
    federation = Federation(graph, local=LocalTraining(0.3, 1))
    state = federation.start({name: weight.double() for name, weight in snapshot(module).items()})
    fit(module, Given(graph), 15, precision="64-true")
    for _ in range(15):
        state, _ = federation.round(state)
    for name, weight in state.weights.items():
        torch.testing.assert_close(module.get_parameter(name).detach(), weight, rtol=1e-6, atol=1e-8)


def test_gcn_learns_synthetic_dnc(fit: Fit) -> None:
    module = Central(100, 2, GCN(), lr=0.1)
    trainer = fit(module, data := DNC(), 300)
    assert 0 < module.best.round <= 300
    module.use_best()
    assert trainer.test(module, data, verbose=False)[0]["test_accuracy"] > 0.85


def test_a_scheduler_moves_the_rate_and_nothing_else(fit: Fit) -> None:
    graph = nodes()
    halving = partial(torch.optim.lr_scheduler.StepLR, step_size=5, gamma=0.5)
    module = Central(6, 3, GCN(hidden=16), lr=0.2, lr_scheduler=halving)
    plain = PlainGNN("gcn", snapshot(module))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.2)
    scheduler, train = halving(optimizer), graph.mask(Split.TRAIN)
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(plain(graph)[train], graph.y[train]).backward()
        optimizer.step()
        scheduler.step()
    fit(module, Given(graph), 12)
    expected = {name: parameter.detach() for name, parameter in plain.named_parameters()}
    torch.testing.assert_close(module.current_weights(), expected, rtol=1e-4, atol=1e-6)


def modules(seed: int = 0) -> list[tuple[RoundModule, ClientGraph]]:
    central = [Central(6, 3, architecture, lr=0.2, seed=seed) for architecture in ARCHITECTURES.values()]
    return [
        *((module, nodes()) for module in central),
        (LocalMLPs(6, 3, 10, lr=0.2, batch_size=2, seed=seed), clients()),
    ]


@pytest.mark.parametrize("which", range(5))
def test_same_seed_same_bits(fit: Fit, which: int) -> None:
    found = []
    for seed in (1, 1, 2):
        module, graph = modules(seed)[which]
        fit(module, Given(graph), 8)
        found.append(snapshot(module))
    assert same_bits(found[0], found[1])
    assert not same_bits(found[0], found[2])


@pytest.mark.parametrize("which", range(5))
def test_a_resumed_run_is_the_uninterrupted_one(fit: Fit, which: int, tmp_path: Path) -> None:
    (whole, graph), (half, _), (rest, _) = (modules()[which] for _ in range(3))
    fit(whole, Given(graph), 25)
    fit(half, Given(graph), 11).save_checkpoint(tmp_path / "half.ckpt")
    fit(rest, Given(graph), 25, tmp_path / "half.ckpt")
    assert same_bits(snapshot(rest), snapshot(whole))
    assert (rest.best.round, rest.best.val_loss) == (whole.best.round, whole.best.val_loss)
    assert same_bits(rest.best.weights, whole.best.weights)
    assert rest.round_metrics == whole.round_metrics


@pytest.mark.parametrize("which", range(5))
def test_weight_averaging_is_validated_and_does_not_disturb(fit: Fit, which: int) -> None:
    """The callback swaps its average in for each validation, and leaves it in the module at the end."""
    (plain, graph), (averaged, _) = modules()[which], modules()[which]
    seen: list[Weights] = []

    class Watch(EMAWeightAveraging):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *arguments: Any) -> None:
            super().on_train_batch_end(trainer, pl_module, *arguments)
            seen.append(snapshot(pl_module))

    fit(plain, Given(graph), 10)
    trainer = fit(averaged, Given(graph), 10, callbacks=Watch(decay=0.5), val_check_interval=3)
    assert same_bits(seen[-1], snapshot(plain))
    assert not same_bits(snapshot(averaged), snapshot(plain))
    assert float(trainer.callback_metrics["val_loss"]) == pytest.approx(averaged.evaluate()["val"].loss, rel=1e-6)


@pytest.mark.parametrize("which", range(4))
def test_a_round_starts_from_weights_that_a_callback_put_in(fit: Fit, which: int) -> None:
    (short, graph), (restarted, _) = modules()[which], modules()[which]
    start = snapshot(restarted)

    class Restart(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: int, batch_idx: int) -> None:
            if batch_idx == 5:
                pl_module.load_state_dict(start)

    fit(short, Given(graph), 4)
    fit(restarted, Given(graph), 9, callbacks=Restart())
    assert same_bits(snapshot(restarted), snapshot(short))


@pytest.mark.parametrize("which", range(5))
def test_validate_test_and_predict_use_the_parameters(fit: Fit, which: int) -> None:
    module, graph = modules()[which]
    trainer = fit(module, data := Given(graph), 10)
    logits = module.predict_logits()
    for split, run in (("val", trainer.validate), ("test", trainer.test)):
        rows = graph.mask(Split[split.upper()])
        found = run(module, datamodule=data, verbose=False)[0]
        assert found[f"{split}_loss"] == pytest.approx(float(F.cross_entropy(logits[rows], graph.y[rows])), rel=1e-5)
    (probability,) = trainer.predict(module, datamodule=data)
    torch.testing.assert_close(probability, logits.softmax(1))


def without_validation(graph: ClientGraph, client: int) -> ClientGraph:
    split = torch.where((graph.client == client) & graph.mask(Split.VAL), int(Split.TEST), graph.split)
    columns = {name: getattr(graph, name) for name in ("x", "y", "client", "shared", "edge_index", "edge_weight")}
    return ClientGraph(**columns, split=split, num_classes=graph.num_classes)


@pytest.mark.parametrize("batch_size", [2, None])
def test_local_mlps_are_independent_models(fit: Fit, batch_size: int | None) -> None:
    """One nn.Sequential per client, on the batches of a federation with the same seed; each keeps its best."""
    rounds, graph = 40, without_validation(clients(), 4)
    module = LocalMLPs(6, 3, 10, 8, lr=0.5, batch_size=batch_size, seed=2)
    start = snapshot(module)
    assert not torch.equal(start["W1"][0], start["W1"][1])
    federation = Federation(graph, local=LocalTraining(0.5, 1, batch_size), seed=2)
    last, best, rounds_of_best = {}, {}, {}
    for k in range(10):
        model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
        model.load_state_dict({"0.weight": start["W1"][k], "2.weight": start["W2"][k]})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        own = graph.client == k
        train, val = (own & graph.mask(Split.TRAIN)).nonzero().flatten(), own & graph.mask(Split.VAL)
        lowest = float("inf")
        for number in range(rounds):
            rows = train[federation.schedule.batches_by_client(number)[k][0]]
            optimizer.zero_grad()
            F.cross_entropy(model(graph.x[rows]), graph.y[rows]).backward()
            optimizer.step()
            loss = F.cross_entropy(model(graph.x[val]), graph.y[val]).item() if bool(val.any()) else -number
            if loss < lowest:
                lowest, rounds_of_best[k] = loss, number
                best[k] = [parameter.detach().clone() for parameter in model.parameters()]
        last[k] = [parameter.detach() for parameter in model.parameters()]
    fit(module, Given(graph), rounds)
    assert len(set(rounds_of_best.values())) > 2
    assert rounds_of_best[4] == rounds - 1
    for layer, name in enumerate(("W1", "W2")):
        expected = torch.stack([last[k][layer] for k in range(10)])
        torch.testing.assert_close(module.get_parameter(name).detach(), expected, rtol=1e-5, atol=1e-5)
    mean = module.evaluate()["val"]
    assert mean.loss == pytest.approx(module.round_metrics["val_loss"])
    module.use_best()
    for layer, name in enumerate(("W1", "W2")):
        expected = torch.stack([best[k][layer] for k in range(10)])
        torch.testing.assert_close(module.get_parameter(name).detach(), expected, rtol=1e-5, atol=1e-5)
    assert module.best.val_loss >= module.evaluate()["val"].loss


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Central(6, 3, lr=0), "lr must be positive and finite, got 0."),
        (lambda: Central(6, 3, seed=-1), "seed must be at least 0, got -1."),
        (lambda: LocalMLPs(6, 3, 0), "num_clients must be at least 1, got 0."),
        (lambda: LocalMLPs(6, 3, 5, batch_size=0), "batch_size must be at least 1, got 0."),
        (lambda: LocalMLPs(6, 3, 5, seed=-1), "seed must be at least 0, got -1."),
    ],
)
def test_refused_arguments(make: Callable[[], RoundModule], text: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert str(refusal.value) == text


@pytest.mark.parametrize(
    ("module", "graph", "text"),
    [
        (Central(6, 3), clients(), "graph must have one sample per client for a centralised network, got '5 samples"),
        (Central(6, 4), nodes(), "graph must have 6 features and 4 classes, as the model has, got ClientGraph(14"),
        (Central(6, 3, GAT()), nodes(True), "graph must have no edge weights for GAT, which takes none, got Client"),
        (
            Central(6, 3, GraphSAGE()),
            nodes(True),
            "graph must have no edge weights for GraphSAGE, which takes none, got ",
        ),
        (LocalMLPs(5, 3, 10), clients(), "graph must have 5 features and 3 classes, as the model has, got ClientGraph"),
        (LocalMLPs(6, 3, 9), clients(), "graph must have 9 clients, as the model has, got 10."),
        (
            LocalMLPs(6, 3, 14),
            random_clients("dnc", N=14),
            "graph must give every client a training sample, as each trains a model of its own, got 'none for client 6",
        ),
    ],
)
def test_refused_data(fit: Fit, module: RoundModule, graph: ClientGraph, text: str) -> None:
    with pytest.raises(InputError) as refusal:
        fit(module, Given(graph), 1)
    assert str(refusal.value).startswith(text)


@pytest.mark.parametrize("which", range(5))
def test_a_rate_that_diverges_is_refused(fit: Fit, which: int) -> None:
    module, graph = modules()[which]
    module.lr = 1e30
    with pytest.raises(DivergedError, match=r"^lr must be small enough for a training loss that does not explode"):
        fit(module, Given(graph), 30)
