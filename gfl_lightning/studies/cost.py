"""What a cell is expected to cost, in seconds of one core: for the order of work and the time left, nothing else."""

from __future__ import annotations

from gfl_lightning.studies.cell import Cell

PER_ROUND = {"dnc": 0.9e-3, "subcora": 1.3e-3, "snc": 5.5e-3, "sc": 3e-3, "cora": 9e-3}
PER_STEP = {"dnc": 0.08e-3, "subcora": 0.1e-3, "snc": 0.7e-3, "sc": 0.3e-3, "cora": 0.2e-3}
PER_UPDATE_OF_NETWORK = {"appnp": 0.8e-3, "gcn": 1.3e-3, "gat": 3.5e-3, "sage": 1.8e-3}
NETWORK_ON_CORA = 15
EXACT_STEP = 4e-3
JACOBIAN_NOISE = 10e-3
PROBE, PROBED_ROUND = 0.5, 2e-3
START = 0.1


def cost(cell: Cell) -> float:
    """Expected seconds."""
    data, method = cell.data.name, cell.method
    if method.kind == "central":
        each = PER_UPDATE_OF_NETWORK[method.architecture] * (NETWORK_ON_CORA if data == "cora" else 1)
        return START + method.updates * each
    if method.kind == "mlps":
        return START + method.updates * PER_ROUND["sc"]
    step = EXACT_STEP if method.estimator == "exact" else PER_STEP[data]
    each_round = (
        PER_ROUND[data]
        + JACOBIAN_NOISE * (method.jacobian_std > 0 or method.jacobian_clip > 0)
        + PROBED_ROUND * (method.probes > 0)
    )
    return START + method.rounds * each_round + method.updates * step + method.probes * PROBE
