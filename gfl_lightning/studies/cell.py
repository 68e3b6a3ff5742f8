"""The unit of all studies: one training of one method on one draw of one data set."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any, Literal

Option = tuple[str, float | int]


@dataclass(frozen=True)
class DataSet:
    """A recipe for client graphs; a repetition draws one.

    Args:
        name: ``dnc``, ``snc``, ``sc``, ``subcora`` or ``cora``.
        options: arguments of the recipe that differ from its defaults, by name.
    """

    name: Literal["dnc", "snc", "sc", "subcora", "cora"]
    options: tuple[Option, ...] = ()

    @property
    def needs_cora(self) -> bool:
        """Whether Cora's files are needed."""
        return self.name in ("subcora", "cora")


@dataclass(frozen=True)
class Method:
    """What is trained, and for how long.

    Args:
        kind: ``gfl`` (a federation), ``central`` (one of PyG's networks) or ``mlps`` (every client alone).
        updates: T.
        lr: η.
        steps: I, updates between two exchanges of a federation.
        batch_size: samples per update and client; ``None`` means all.
        estimator: of a federation.
        aggregator: of a federation; ``identity`` makes it FedMLP.
        architecture: of a centralised network.
        hidden_std: standard deviation of the noise on each entry of an uploaded ĥ.
        jacobian_std: and of an uploaded ∇ĥ.
        epsilon: ε that all rounds together may spend against the server, for a client's whole data; 0 means no bound.
            The noise is then calibrated to it and in proportion to the bounds below.
        hidden_clip: bound on ‖ĥ_j‖ where there is an ε.
        jacobian_clip: bound on ‖∇ĥ_j‖.
        update_clip: bound on ‖W_k − W̄‖.
        same_start: whether all repetitions start from the same weights.
        probes: at how many rounds the theory's quantities are measured; ‖∇F(W̄)‖² is then measured at every round.
    """

    kind: Literal["gfl", "central", "mlps"]
    updates: int
    lr: float
    steps: int = 1
    batch_size: int | None = None
    estimator: Literal["compensated", "v1", "exact"] = "compensated"
    aggregator: Literal["appnp", "identity"] = "appnp"
    architecture: Literal["appnp", "gcn", "gat", "sage"] = "appnp"
    hidden_std: float = 0.0
    jacobian_std: float = 0.0
    epsilon: float = 0.0
    hidden_clip: float = 0.0
    jacobian_clip: float = 0.0
    update_clip: float = 0.0
    same_start: bool = False
    probes: int = 0

    @property
    def rounds(self) -> int:
        """Communication rounds, or updates where there is no communication."""
        return max(1, self.updates // self.steps)


@dataclass(frozen=True)
class Cell:
    """One training; repetition r takes draw r of the data and, unless all start alike, the weights of seed r."""

    data: DataSet
    method: Method
    repetition: int

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the result, ready for JSON; what is at its default is left out."""
        method = {f.name: getattr(self.method, f.name) for f in fields(Method)}
        changed = {f.name: method[f.name] for f in fields(Method) if method[f.name] != f.default}
        return {
            "data": {"name": self.data.name, **dict(self.data.options)},
            "method": changed,
            "repetition": self.repetition,
        }

    @property
    def key(self) -> str:
        """A digest of the parameters."""
        return hashlib.sha256(json.dumps(self.parameters, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Row:
    """An entry of a table or a point of a figure: a method on a data set, over repetitions.

    Args:
        label: the method as the tables call it.
        column: the data set as the tables call it.
        data: the data.
        method: the training.
        repetitions: how many.
    """

    label: str
    column: str
    data: DataSet
    method: Method
    repetitions: int

    @property
    def cells(self) -> list[Cell]:
        """Its trainings."""
        return [Cell(self.data, self.method, repetition) for repetition in range(self.repetitions)]
