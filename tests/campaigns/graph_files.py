"""Broken graph files: PyG graphs with fields of every type and shape, and files of random bytes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from campaigns.campaign import Campaign, Outcome
from graph_builders import random_clients
from torch_geometric.data import Data

from gfl_lightning.federated.federation import Federation
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.graphs.datasets.client_graph_file import ClientGraphFile
from gfl_lightning.models.encoders.mlp import MLP

FIELDS = ["x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask", "client", "shared"]
FIELDS += ["sample_weight", "num_classes"]
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
TYPES += [torch.complex64, torch.int8]
TWICE = reduce(lambda inner, _: [inner, inner], range(60), [1])


def _other(value: Any, draw: random.Random) -> Any:
    """Something else in the place of a field."""
    tensor = isinstance(value, torch.Tensor) and 0 < value.numel() < 10**6
    whole = tensor and value.layout == torch.strided and not value.is_meta
    makers: list[Any] = [
        lambda: draw.choice(
            [None, 1, -1, 2, 1.5, float("nan"), "abc", [], [1, 2], {}, (1,), 10**30, True, 2**62, TWICE]
        ),
        lambda: torch.zeros([draw.choice([0, 1, 2, 5]) for _ in range(draw.randrange(4))], dtype=draw.choice(TYPES)),
    ]
    if whole:
        makers += [
            lambda: value.to(draw.choice(TYPES)),
            lambda: value[: draw.randrange(len(value) + 1)] if value.ndim else value,
            lambda: value.unsqueeze(draw.randrange(value.ndim + 1)),
            lambda: value.flip(0) if value.ndim else value,
            lambda: value.T if value.ndim == 2 else value * 2 if value.dtype != torch.bool else ~value,
            lambda: torch.full_like(value, draw.choice([0, 1])),
            lambda: value * draw.choice([-1, 10**6]) if value.dtype != torch.bool else value,
            lambda: (
                (value[:100] if value.ndim else value).float() * draw.choice([float("nan"), float("inf"), 1e25, -1.0])
            ),
            lambda: value.to_sparse() if value.dtype != torch.bool else value,
            lambda: value[:1].expand(value.shape) if value.ndim else value,
            lambda: torch.zeros(1, dtype=value.dtype).expand(10**10),
            lambda: torch.nn.Parameter(value[:100].float()) if value.ndim else value,
            lambda: torch.empty(value.shape, device="meta"),
        ]
    return draw.choice(makers)()


@dataclass
class GraphFiles(Campaign):
    """Files that are trained on for a round, or refused."""

    def __post_init__(self) -> None:
        self.name = "broken graph files (.pt)"

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        data = random_clients(draw.choice(["sc", "dnc"]), seed=draw.randrange(5), dtype=torch.float32).to_data()
        for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
            name = draw.choice(FIELDS)
            if draw.random() < 0.15:
                if name in data:
                    del data[name]
            else:
                data[name] = _other(data.get(name), draw)
        others = [Data(), {}, [data], None, data.get("x"), "abc", data.to_dict()]
        if draw.random() < 0.05:  # what PyG keeps behind its fields
            data.__dict__[draw.choice(["_store", "num_nodes", "x", "keys"])] = draw.choice(
                [None, {}, 3, data.get("x"), [data]]
            )
        content: Any = data if draw.random() < 0.95 else draw.choice(others)
        torch.save(content, "g.pt")
        if draw.random() < 0.1:
            blob = bytearray(Path("g.pt").read_bytes())
            blob[draw.randrange(len(blob)) :: draw.choice([1, 1000])] = b""
            Path("g.pt").write_bytes(blob)
        graph = ClientGraphFile("g.pt", **draw.choice([{}, {}, {"class_weights": "balanced"}])).graph
        federation = Federation(graph, MLP((4,)), local=LocalTraining(0.01, 1))
        state, _ = federation.round(federation.start())
        finite = all(bool(torch.isfinite(weight).all()) for weight in state.weights.values())
        return Outcome("ran") if finite else Outcome("worse", "weights that are not finite")
