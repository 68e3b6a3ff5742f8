"""A saved graph is read as it was, and a file that holds anything else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graph_builders import assert_same_bits, random_clients
from torch_geometric.data import Data

from gfl_lightning.checks import InputError
from gfl_lightning.graphs.datasets.client_graph_file import ClientGraphFile


@pytest.mark.parametrize("task", ["dnc", "snc", "sc"])
def test_a_saved_graph_is_read_as_it_was(tmp_path: Path, task: str) -> None:
    graph, file = random_clients(task, dtype=torch.float32), tmp_path / "graph.pt"
    torch.save(graph.to_data(), file)
    data = ClientGraphFile(file)
    assert_same_bits(data.graph, graph)
    assert list(data.names.classes) == [0, 1, 2]
    assert list(data.names.clients) == list(range(graph.num_clients))
    assert data.repeated(1) is data
    weighed = ClientGraphFile(str(file), class_weights={"0": 1.0, "1": 2.0, "2": 3.0}).graph
    assert torch.equal(weighed.weight, (graph.y + 1).float())


def test_reading_leaves_the_list_of_classes_that_torch_loads_alone(tmp_path: Path) -> None:
    before = set(torch.serialization.get_safe_globals())
    assert Data in before  # PyG's own
    torch.save(random_clients("sc").to_data(), tmp_path / "graph.pt")
    ClientGraphFile(tmp_path / "graph.pt").make()
    assert set(torch.serialization.get_safe_globals()) == before


def test_other_files_are_refused(tmp_path: Path) -> None:
    file, data = tmp_path / "graph.pt", random_clients("sc").to_data()
    with pytest.raises(InputError, match=r"path must name a file, got '.*graph\.pt'"):
        ClientGraphFile(file)
    file.write_text("no")
    with pytest.raises(InputError, match="class_weights must be positive and finite"):
        ClientGraphFile(file, class_weights={"0": 0.0})
    with pytest.raises(InputError, match=r"path must be a PyG Data of tensors, got '.*graph\.pt' \(\w+\)"):
        ClientGraphFile(file).make()
    torch.save({"x": data.x}, file)
    with pytest.raises(InputError, match=r"path must be a PyG Data of tensors, got .* with dict"):
        ClientGraphFile(file).make()
    torch.save(Path("an object"), file)
    with pytest.raises(InputError, match=r"path must be a PyG Data of tensors, got .* \(UnpicklingError\)"):
        ClientGraphFile(file).make()
    for kept in (None, 3, {"x": 1}, [data.x]):
        strange = random_clients("sc").to_data()
        strange.__dict__["_store"] = kept  # where PyG looks for fields
        torch.save(strange, file)
        with pytest.raises(InputError, match="path must be a PyG Data"):
            ClientGraphFile(file).make()
    del data.train_mask, data.val_mask, data.test_mask
    torch.save(data, file)
    with pytest.raises(InputError, match="data must have a train_mask, val_mask or test_mask"):
        ClientGraphFile(file).make()
