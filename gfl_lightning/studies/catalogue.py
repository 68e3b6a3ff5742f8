"""What each study runs: the configurations of the paper's experiments, changed where a row differs from its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gfl_lightning.studies.audit_rows import audit
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.private_rows import privacy, samples, settings
from gfl_lightning.studies.published import CONNECTIVITY_DEGREES, DNC, NOISE_LEVELS, SC, SNC, SUBCORA

LOCAL_STEPS = (1, 10, 20, 50)
GRAPH_SEEDS = tuple(range(10))
REPETITIONS_PER_GRAPH = 5
OURS_REPETITIONS = 10
THEORY_REPETITIONS = 5
PROBES = 5
STALENESS_STEPS = (1, 2, 5, 10, 20, 50, 100)

CONFIGURATIONS = {DNC: "dnc_synthetic", SUBCORA: "dnc_subcora", SNC: "snc_synthetic", SC: "sc_synthetic"}
NETWORKS = {"APPNP": "appnp", "GCN": "gcn", "GAT": "gat", "GraphSAGE": "sage"}


def summary(repetitions: int) -> list[Row]:
    """GFL-APPNP for each I, and V1 with I = 10, on the four data sets."""
    rows = []
    for column, name in CONFIGURATIONS.items():
        ours, v1 = paper(name), paper(f"{name}_v1")
        rows += [Row(f"GFL-APPNP I={n}", column, ours.with_steps(n), repetitions) for n in LOCAL_STEPS]
        rows.append(Row("GFL-APPNP-V1 I=10", column, v1, repetitions))
    return rows


def dnc(repetitions: int) -> list[Row]:
    """Deterministic node classification: ours and the centralised networks, and ours over several graphs."""
    networks = [
        Row(label, column, paper(f"{CONFIGURATIONS[column]}_{name}"), repetitions)
        for label, name in NETWORKS.items()
        for column in (DNC, SUBCORA)
    ]
    return _of(summary(repetitions), DNC, SUBCORA) + networks + graphs(min(repetitions, REPETITIONS_PER_GRAPH))


def graphs(repetitions: int) -> list[Row]:
    """I = 10 and V1 on several draws of the DNC graph."""
    return [
        Row(label, f"graph {seed}", paper(name).changed(data={"graph_seed": seed}), repetitions)
        for seed in GRAPH_SEEDS
        for label, name in (("GFL-APPNP I=10", "dnc_synthetic"), ("GFL-APPNP-V1 I=10", "dnc_synthetic_v1"))
    ]


def snc(repetitions: int) -> list[Row]:
    """Stochastic node classification."""
    return _of(summary(repetitions), SNC)


def sc(repetitions: int) -> list[Row]:
    """Supervised classification: ours, FedMLP and MLPs."""
    fedmlp = paper("sc_fedmlp")
    return [
        *_of(summary(repetitions), SC),
        *(Row(f"FedMLP I={n}", SC, fedmlp.with_steps(n), repetitions) for n in LOCAL_STEPS[1:]),
        Row("MLPs", SC, paper("sc_mlps"), repetitions),
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
    base = paper("sc_connectivity")
    return [
        Row("GFL-APPNP I=10", f"degree {degree}", base.changed(data={"degree": degree}), repetitions)
        for degree in CONNECTIVITY_DEGREES
    ]


def dp(repetitions: int) -> list[Row]:
    """Gaussian noise on what clients upload, on subCora: on ĥ (hn), or on ĥ and ∇ĥ (hn_gn)."""
    rows = []
    for kind, levels in (("hn", NOISE_LEVELS), ("hn_gn", NOISE_LEVELS[1:])):
        base = Experiment.read(f"private/dp_subcora_{kind}")
        noisy = base.model_options["protection"]
        for steps in (10, 20):
            for level in levels:
                protection = {upload: {"init_args": {"std": level}} for upload in noisy}
                experiment = base.with_steps(steps).changed(model={"protection": protection})
                rows.append(Row(f"I={steps} {kind}", f"SD {level:g}", experiment, repetitions))
    return rows


def cora(repetitions: int) -> list[Row]:
    """All of Cora, 2708 clients on the public split, against centralised networks."""
    ours, seeds = paper("dnc_cora"), min(repetitions, OURS_REPETITIONS)

    def network(name: str) -> Experiment:
        return paper(f"dnc_subcora_{name}").on(ours).changed(ours.updates, {"lr": ours.lr})

    experiments = {
        "GFL-APPNP I=10": ours,
        "GFL-APPNP I=50": ours.with_steps(50),
        "GFL-APPNP-V1 I=10": ours.changed(model={"estimator": "v1", "protocol": "jacobian"}),
        "APPNP": network("appnp"),
        "GCN": network("gcn"),
    }
    return [Row(label, "Cora", experiment, seeds) for label, experiment in experiments.items()]


def staleness(repetitions: int) -> list[Row]:
    """What stale representations cost: three estimators against I on synthetic DNC."""
    base, few = paper("dnc_synthetic"), min(repetitions, THEORY_REPETITIONS)
    return [
        Row(estimator, f"I={n}", base.with_steps(n).changed(model={"estimator": estimator}), few, PROBES)
        for estimator in ("compensated", "v1", "exact")
        for n in STALENESS_STEPS
    ]


def theory(repetitions: int) -> list[Row]:
    """The convergence bound's left side and its terms, against I, N and λ_max; T is the course of each run."""
    few, data = min(repetitions, THEORY_REPETITIONS), paper("sc_connectivity").changed(data={"degree": 10})
    base = paper("sc_synthetic").on(data).changed(100, {"local": {"lr": 0.1}})

    def row(sweep: str, value: int, experiment: Experiment) -> Row:
        return Row(sweep, f"{value}", experiment, few, PROBES)

    return [
        *(row("I", n, base.with_steps(n)) for n in (1, 2, 5, 10, 20, 50)),
        *(row("N", N, base.changed(data={"num_clients": N})) for N in (20, 40, 80, 160)),
        *(row("degree", degree, base.changed(data={"degree": degree})) for degree in CONNECTIVITY_DEGREES),
    ]


STUDIES: dict[str, Callable[[int], list[Row]]] = {
    study.__name__: study
    for study in (
        summary,
        dnc,
        snc,
        sc,
        dp,
        connectivity,
        necessity,
        curves,
        cora,
        staleness,
        theory,
        privacy,
        samples,
        settings,
        audit,
    )
}


def paper(name: str) -> Experiment:
    """A configuration of the paper's."""
    return Experiment.read(f"paper/{name}")


def shrunk(row: Row) -> Row:
    """The row on small data with a hundredth of the updates and at most ten local steps, to see that all works."""
    experiment = row.experiment
    if row.audit and experiment.needs_cora:
        experiment = experiment.on(paper("dnc_synthetic"))
    small: dict[str, Any] = {
        "DNC": {"num_clients": 40, "num_features": 20},
        "SNC": {"num_clients": 40, "num_features": 20, "samples_per_client": 4},
        "SC": {"num_clients": 20, "num_features": 20, "test_samples": 10},
        "Citations": {"num_clients": 300, "num_words": 50, "num_val": 50, "num_test": 100},
    }.get(experiment.data, {})
    if experiment.data == "SC":
        small |= {"train_samples": 20, "val_samples": 10} if "train_samples" in experiment.data_options else {}
        small["degree"] = min(experiment.data_options.get("degree", 5), 6)
    steps = min(experiment.steps, 10)
    rounds = max(steps, experiment.updates // 100) // steps
    changes = {"local": {"steps": steps}} if experiment.model == "GFL" else {}
    return replace(row, experiment=experiment.changed(rounds, changes, small), probes=min(row.probes, 1))


def _of(rows: list[Row], *columns: str) -> list[Row]:
    return [row for row in rows if row.column in columns]
