"""A saved PyG graph as a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from gfl_lightning.checks import require
from gfl_lightning.graphs.class_weights import ClassWeights, check_class_weights, weigh_classes
from gfl_lightning.graphs.client_graph import COLUMNS, ClientGraph
from gfl_lightning.graphs.datasets.data_set import DataSet
from gfl_lightning.graphs.safe_loading import load_safely

PYG_CLASSES = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage)


@dataclass(frozen=True, eq=False)
class ClientGraphFile(DataSet):
    """A client graph from a PyG ``Data`` that ``torch.save`` wrote.

    It needs ``x``, ``y``, ``edge_index`` and one of ``train_mask``, ``val_mask``, ``test_mask``. Nodes are clients with
    one sample each, unless ``client`` gives the owner of each row of ``x``. The file is loaded without running code.

    >>> import tempfile, torch
    >>> from gfl_lightning.graphs.datasets.karate import KarateClub
    >>> with tempfile.NamedTemporaryFile(suffix=".pt") as file:
    ...     torch.save(KarateClub().graph.to_data(), file.name)
    ...     ClientGraphFile(file.name).graph.num_clients
    34

    Args:
        path: the .pt file.
        class_weights: of the loss: ``balanced``, or a weight for each class by its number; by default all are 1.
    """

    files: ClassVar[tuple[str, ...]] = ("path",)
    path: str | Path
    class_weights: ClassWeights = None

    def __post_init__(self) -> None:
        require(Path(self.path).is_file(), "path", "name a file", str(self.path))
        check_class_weights(self.class_weights)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Class counts, where classes are weighted by them."""
        return ("class counts",) if self.class_weights == "balanced" else ()

    def make(self) -> ClientGraph:
        """Read the file."""
        what = "a PyG Data of tensors"
        data = load_safely(self.path, "path", what, PYG_CLASSES)
        require(isinstance(data, Data), "path", f"be {what}", f"{str(self.path)!r} with {type(data).__name__}")
        graph = ClientGraph.from_data(Data(**_fields(data, str(self.path))))
        return weigh_classes(graph, self.class_weights, range(graph.num_classes))


def _fields(data: Data, name: str) -> dict[str, Any]:
    """The fields of a graph; how PyG keeps them is the file's to say too, and anything may stand in their place."""
    store = vars(data).get("_store")
    found = vars(store).get("_mapping") if isinstance(store, GlobalStorage) else None
    require(isinstance(found, dict), "path", "be a PyG Data that has fields", name)
    assert isinstance(found, dict)
    return {field: found[field] for field in (*COLUMNS, "num_classes") if field in found}
