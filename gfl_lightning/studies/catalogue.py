"""What each study runs: the paper's set-ups and ours, as rows of cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gfl_lightning.studies.cell import DataSet, Method, Option, Row
from gfl_lightning.studies.published import CONNECTIVITY_DEGREES, DNC, NOISE_LEVELS, SC, SNC, SUBCORA

LOCAL_STEPS = (1, 10, 20, 50)
GRAPH_SEEDS = tuple(range(10))
REPETITIONS_PER_GRAPH = 5
OURS_REPETITIONS = 10
THEORY_REPETITIONS = 5
PROBES = 5
EPSILONS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
STALENESS_STEPS = (1, 2, 5, 10, 20, 50, 100)

DNC_DATA, SUBCORA_DATA, SNC_DATA, SC_DATA = DataSet("dnc"), DataSet("subcora"), DataSet("snc"), DataSet("sc")
CORA_DATA = DataSet("cora")


def summary(repetitions: int) -> list[Row]:
    """GFL-APPNP and V1 on the four data sets."""
    return [
        *_federated(DNC, DNC_DATA, Method("gfl", 3000, 0.5), repetitions),
        *_federated(SUBCORA, SUBCORA_DATA, Method("gfl", 4000, 0.02), repetitions),
        *_federated(SNC, SNC_DATA, Method("gfl", 5000, 0.2), repetitions, v1_updates=8000, v1_lr=0.6),
        *_federated(SC, SC_DATA, Method("gfl", 2000, 0.2, batch_size=5), repetitions),
    ]


def dnc(repetitions: int) -> list[Row]:
    """Deterministic node classification: ours and the centralised networks, and ours over several graphs."""
    rows = _of(summary(repetitions), DNC, SUBCORA)
    networks: dict[str, tuple[Method, Method]] = {
        "APPNP": (Method("central", 3000, 0.5), Method("central", 4000, 0.02)),
        "GCN": (
            Method("central", 4000, 0.1, architecture="gcn"),
            Method("central", 4000, 0.01, architecture="gcn"),
        ),
        "GAT": (
            Method("central", 4000, 0.02, architecture="gat"),
            Method("central", 4000, 0.01, architecture="gat"),
        ),
        "GraphSAGE": (
            Method("central", 5000, 0.02, architecture="sage"),
            Method("central", 4000, 0.01, architecture="sage"),
        ),
    }
    for label, (synthetic, real) in networks.items():
        rows.append(Row(label, DNC, DNC_DATA, synthetic, repetitions))
        rows.append(Row(label, SUBCORA, SUBCORA_DATA, real, repetitions))
    return rows + graphs(min(repetitions, REPETITIONS_PER_GRAPH))


def graphs(repetitions: int) -> list[Row]:
    """I = 10 and V1 on several draws of the DNC graph."""
    return [
        Row(label, f"graph {seed}", DataSet("dnc", (("graph_seed", seed),)), method, repetitions)
        for seed in GRAPH_SEEDS
        for label, method in (
            ("GFL-APPNP I=10", Method("gfl", 3000, 0.5, 10)),
            ("GFL-APPNP-V1 I=10", Method("gfl", 3000, 0.5, 10, estimator="v1")),
        )
    ]


def snc(repetitions: int) -> list[Row]:
    """Stochastic node classification."""
    return _of(summary(repetitions), SNC)


def sc(repetitions: int) -> list[Row]:
    """Supervised classification: ours, FedMLP and MLPs."""
    fedmlp = Method("gfl", 2000, 0.1, batch_size=5, aggregator="identity")
    return [
        *_of(summary(repetitions), SC),
        *(Row(f"FedMLP I={n}", SC, SC_DATA, replace(fedmlp, steps=n), repetitions) for n in LOCAL_STEPS[1:]),
        Row("MLPs", SC, SC_DATA, Method("mlps", 200, 0.1, batch_size=5), repetitions),
    ]


def necessity(repetitions: int) -> list[Row]:
    """What the graph adds on SC: ours, FedMLP and MLPs (figure 2b)."""
    wanted = ("GFL-APPNP I=10", "FedMLP I=10", "MLPs")
    return [row for row in sc(repetitions) if row.label in wanted]


def curves(repetitions: int) -> list[Row]:
    """Loss against updates on the four data sets (figure 3)."""
    return [row for row in summary(repetitions) if "V1" not in row.label]


def connectivity(repetitions: int) -> list[Row]:
    """Accuracy against λ_max(B_N L†) on four SC graphs, all from the same weights (figure 2a)."""
    method = Method("gfl", 1500, 0.5, 10, batch_size=5, same_start=True)
    return [
        Row("GFL-APPNP I=10", f"degree {degree}", _connectivity_data(degree), method, repetitions)
        for degree in CONNECTIVITY_DEGREES
    ]


def dp(repetitions: int) -> list[Row]:
    """Gaussian noise on what clients upload, on subCora: on ĥ (hn), or on ĥ and ∇ĥ (hn_gn)."""
    rows = []
    for kind, on_jacobian in (("hn", False), ("hn_gn", True)):
        for steps in (10, 20):
            for level in NOISE_LEVELS[1:] if on_jacobian else NOISE_LEVELS:
                noise = {"hidden_std": level, "jacobian_std": level if on_jacobian else 0.0}
                method = Method("gfl", 4000, 0.01, steps, **noise)  # type: ignore[arg-type]  # both are numbers
                rows.append(Row(f"I={steps} {kind}", f"SD {level:g}", SUBCORA_DATA, method, repetitions))
    return rows


def cora(repetitions: int) -> list[Row]:
    """All of Cora, 2708 clients on the public split, against centralised networks."""
    seeds = min(repetitions, OURS_REPETITIONS)
    methods = {
        "GFL-APPNP I=10": Method("gfl", 1000, 0.5, 10),
        "GFL-APPNP I=50": Method("gfl", 1000, 0.5, 50),
        "GFL-APPNP-V1 I=10": Method("gfl", 1000, 0.5, 10, estimator="v1"),
        "APPNP": Method("central", 1000, 0.5),
        "GCN": Method("central", 1000, 0.5, architecture="gcn"),
    }
    return [Row(label, "Cora", CORA_DATA, method, seeds) for label, method in methods.items()]


def staleness(repetitions: int) -> list[Row]:
    """What stale representations cost: three estimators against I on synthetic DNC."""
    few = min(repetitions, THEORY_REPETITIONS)
    return [
        Row(estimator, f"I={n}", DNC_DATA, Method("gfl", 3000, 0.5, n, estimator=estimator, probes=PROBES), few)
        for estimator in ("compensated", "v1", "exact")
        for n in STALENESS_STEPS
    ]


def theory(repetitions: int) -> list[Row]:
    """The convergence bound's left side and its terms, against I, N and λ_max; T is the course of each run."""
    few = min(repetitions, THEORY_REPETITIONS)
    base = Method("gfl", 1000, 0.1, 10, batch_size=5, probes=PROBES)

    def row(sweep: str, value: int, data: DataSet, method: Method) -> Row:
        return Row(sweep, f"{value}", data, method, few)

    return [
        *(row("I", n, _connectivity_data(10), replace(base, steps=n)) for n in (1, 2, 5, 10, 20, 50)),
        *(row("N", N, _connectivity_data(10, N), base) for N in (20, 40, 80, 160)),
        *(row("degree", degree, _connectivity_data(degree), base) for degree in CONNECTIVITY_DEGREES),
    ]


def privacy(repetitions: int) -> list[Row]:
    """Accuracy against ε for a client's whole data: bounds of 1 on all that is uploaded, noise calibrated to ε."""
    seeds = min(repetitions, OURS_REPETITIONS)
    base = Method("gfl", 300, 0.5, 10)
    bounds = {
        "compensated": replace(base, hidden_clip=1.0, jacobian_clip=1.0, update_clip=1.0),
        "v1": replace(base, estimator="v1", hidden_clip=1.0, update_clip=1.0),
        "FedMLP": replace(base, aggregator="identity", update_clip=1.0),
    }
    rows = []
    for label, method in bounds.items():
        for epsilon in EPSILONS:
            rows.append(Row(label, f"ε = {epsilon:g}", DNC_DATA, replace(method, epsilon=epsilon), seeds))
        plain = replace(method, hidden_clip=0.0, jacobian_clip=0.0, update_clip=0.0)
        rows.append(Row(label, "no protection", DNC_DATA, plain, seeds))
    return rows


STUDIES: dict[str, Callable[[int], list[Row]]] = {
    study.__name__: study
    for study in (summary, dnc, snc, sc, dp, connectivity, necessity, curves, cora, staleness, theory, privacy)
}


def shrunk(row: Row) -> Row:
    """The row on small data with a hundredth of the updates and at most ten local steps, to see that all works."""
    small: tuple[Option, ...] = {
        "dnc": (("num_clients", 40), ("num_features", 20)),
        "snc": (("num_clients", 40), ("num_features", 20), ("samples_per_client", 4)),
        "sc": (("num_clients", 20), ("num_features", 20), ("test_samples", 10)),
    }.get(row.data.name, ())
    kept = tuple(option for option in row.data.options if option[0] not in ("num_clients", "degree"))
    if row.data.name == "sc":
        small = (*small, ("degree", min(dict(row.data.options).get("degree", 5), 6)))
    data = DataSet(row.data.name, (*kept, *small))
    steps, probes = min(row.method.steps, 10), min(row.method.probes, 1)
    updates = max(steps, row.method.updates // 100)
    return replace(row, data=data, method=replace(row.method, updates=updates, steps=steps, probes=probes))


def _federated(
    column: str, data: DataSet, method: Method, repetitions: int, v1_updates: int = 0, v1_lr: float = 0.0
) -> list[Row]:
    """GFL-APPNP for each I, and V1 with I = 10, possibly with updates and a rate of its own."""
    v1 = replace(method, steps=10, estimator="v1", updates=v1_updates or method.updates, lr=v1_lr or method.lr)
    return [
        *(Row(f"GFL-APPNP I={n}", column, data, replace(method, steps=n), repetitions) for n in LOCAL_STEPS),
        Row("GFL-APPNP-V1 I=10", column, data, v1, repetitions),
    ]


def _of(rows: list[Row], *columns: str) -> list[Row]:
    return [row for row in rows if row.column in columns]


def _connectivity_data(degree: float, num_clients: int = 40) -> DataSet:
    return DataSet("sc", (("num_clients", num_clients), ("degree", degree), ("lam", 2), ("mu", 1)))
