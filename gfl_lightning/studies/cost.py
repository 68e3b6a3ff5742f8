"""What a cell is expected to cost, in seconds of one core: for the order of work and the time left, nothing else."""

from __future__ import annotations

from gfl_lightning.studies.cell import Cell

PER_ROUND = {"DNC": 0.9e-3, "SubCora": 1.3e-3, "SNC": 5.5e-3, "SC": 3e-3, "Planetoid": 9e-3, "Citations": 9e-3}
PER_STEP = {"DNC": 0.08e-3, "SubCora": 0.1e-3, "SNC": 0.7e-3, "SC": 0.3e-3, "Planetoid": 0.2e-3, "Citations": 0.2e-3}
PER_UPDATE_OF_NETWORK = {"APPNPNet": 0.8e-3, "GCN": 1.3e-3, "GAT": 3.5e-3, "GraphSAGE": 1.8e-3}
NETWORK_ON_CORA = 15
EXACT_STEP = 4e-3
JACOBIAN_NOISE = 10e-3
PROBE, PROBED_ROUND = 0.5, 2e-3
START = 0.1
AUDIT = 25.0


def cost(cell: Cell) -> float:
    """Expected seconds."""
    if cell.audit:
        return AUDIT
    experiment, data = cell.experiment, cell.experiment.data
    if experiment.model == "Central":
        each = PER_UPDATE_OF_NETWORK[experiment.architecture] * (NETWORK_ON_CORA if data == "Planetoid" else 1)
        return START + experiment.updates * each
    if experiment.model == "LocalMLPs":
        return START + experiment.updates * PER_ROUND["SC"]
    options = experiment.model_options
    step = EXACT_STEP if options.get("estimator") == "exact" else PER_STEP[data]
    protects_jacobians = "jacobian" in options.get("protection", {})
    each_round = PER_ROUND[data] + JACOBIAN_NOISE * protects_jacobians + PROBED_ROUND * (cell.probes > 0)
    return START + experiment.rounds * each_round + experiment.updates * step + cell.probes * PROBE
