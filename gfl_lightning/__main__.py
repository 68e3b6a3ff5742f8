"""``python -m gfl_lightning``: for now, a summary of the synthetic DNC data set."""

from gfl_lightning.graphs.synthetic import dnc
from gfl_lightning.theory.connectivity import connectivity

graph = dnc()
print(graph)
print(f"whole graph: {connectivity(graph)}")
print(f"training clients: {connectivity(graph, graph.training_clients)}")
