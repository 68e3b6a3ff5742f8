"""Studies of privacy: accuracy against ε by several methods, and how the settings of randomised records are chosen."""

from __future__ import annotations

from typing import Any

from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.experiment import NOTHING, Experiment
from gfl_lightning.studies.published import DNC, SC, SNC

REPETITIONS = 10
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
UNPROTECTED_ROUNDS = 40
GAUSSIAN = "gfl_lightning.privacy.mechanisms.gaussian_noise.Gaussian"
PRIV_UNIT = "gfl_lightning.privacy.randomise.priv_unit.PrivUnit"
WITHHELD = {"class_path": "gfl_lightning.privacy.randomise.withheld.Withheld"}
ONCE, LABELS, EVERY_ROUND = "randomise once", "labels only", "noise in every round"
NO_GRAPH = "no graph, noise in every round"
STAND_IN, HELD_OUT = "citations", "held-out citations"


def privacy(repetitions: int) -> list[Row]:
    """One client is hidden, which has one sample: Cora, synthetic DNC, and networks that no setting was chosen on."""
    seeds = min(repetitions, REPETITIONS)
    cora, dnc, citations = Experiment.read("private/randomise_cora"), _paper("dnc_synthetic"), _citations()
    labels = cora.changed(model={"records": {"init_args": {"features": WITHHELD}}})
    noisy = _paper("dnc_cora").changed(5, {"estimator": "v1", "protocol": "jacobian", "local": {"steps": 10}})
    alone = noisy.changed(model={"aggregator": {"class_path": "Identity"}, "estimator": "compensated"})
    return [
        *_once(ONCE, "Cora", cora, seeds),
        *_once(LABELS, "Cora", labels, seeds),
        *_noisy(EVERY_ROUND, "Cora", noisy, ("hidden", "update"), seeds),
        *_noisy(NO_GRAPH, "Cora", alone, ("update",), seeds),
        *_once(ONCE, DNC, cora.on(dnc), seeds),
        *_once(LABELS, DNC, labels.on(dnc), seeds),
        *_noisy(EVERY_ROUND, DNC, noisy.on(dnc), ("hidden", "update"), seeds),
        *_noisy(NO_GRAPH, DNC, alone.on(dnc), ("update",), seeds),
        *_once(ONCE, HELD_OUT, citations, seeds),
        *_once(LABELS, HELD_OUT, labels.on(citations), seeds),
    ]


def samples(repetitions: int) -> list[Row]:
    """Clients have many samples: one whole client is hidden (SNC), or one sample of a client (SC)."""
    seeds, once = min(repetitions, REPETITIONS), Experiment.read("private/randomise_sc")
    snc = Experiment.read("private/randomise_cora").on(_paper("snc_synthetic"))
    pooled = snc.changed(model={"records": {"init_args": {"pooled": True}}})
    noisy = _paper("sc_synthetic").on(once)
    local: dict[str, Any] = {"lr": 4.0, "steps": 5, "batch_size": None}
    encoder = {"class_path": "MLP", "init_args": {"hidden": [16]}}
    noisy = noisy.changed(30, {"local": local, "encoder": encoder})
    step = {"class_path": "gfl_lightning.StepNoise", "init_args": {"clip": 0.3}}
    rows = [*_once(ONCE, SNC, pooled, seeds), *_once(ONCE, SC, once, seeds)]
    for epsilon in EPSILONS:
        bounds = {"hidden": _gaussian(0.5), "jacobian": _gaussian(1.0), "steps": step}
        private = _private(noisy, epsilon, bounds, "sample")
        rows.append(Row(EVERY_ROUND, _column(SC, epsilon), private, seeds))
    return [*rows, Row(EVERY_ROUND, _column(SC, None), noisy, seeds)]


def settings(repetitions: int) -> list[Row]:
    """Settings of randomised records at ε = 8, one changed at a time, on synthetic data: nobody's privacy is spent."""
    seeds, citations = min(repetitions, REPETITIONS), _citations(num_clients=2000, num_words=500)
    base, sc = Experiment.read("private/randomise_cora").on(citations), Experiment.read("private/randomise_sc")
    rows = [Row("as configured", STAND_IN, base, seeds)]
    rows += [
        Row(f"{name} {value:g}", STAND_IN, base.changed(model={"records": {"init_args": {name: value}}}), seeds)
        for name, values in (("label_share", (0.75, 0.5)), ("share_labels", (0.0, 1.0, 4.0)))
        for value in values
    ]
    for k in (64, 128):
        features = {"class_path": PRIV_UNIT, "init_args": {"dimensions": k}}
        other = base.changed(model={"records": {"init_args": {"features": features}}})
        rows.append(Row(f"dimensions {k}", STAND_IN, other, seeds))
    for decay in (1e-5, 1e-3):
        other = base.changed(model={"local": {"weight_decay": decay}})
        rows.append(Row(f"weight_decay {decay:g}", STAND_IN, other, seeds))
    rows.append(Row("as configured", SC, sc, seeds))
    for options in ({"label_share": 0.5}, {"share_labels": 0.0}):
        ((name, value),) = options.items()
        other = sc.changed(model={"records": {"init_args": options}})
        rows.append(Row(f"{name} {value:g}", SC, other, seeds))
    return rows


def epsilon_of(column: str) -> str:
    """What a column says of ε."""
    return column.rpartition("ε = ")[2]


def _once(label: str, name: str, experiment: Experiment, repetitions: int) -> list[Row]:
    return [Row(label, _column(name, epsilon), _at(experiment, epsilon), repetitions) for epsilon in (*EPSILONS, None)]


def _at(experiment: Experiment, epsilon: float | None) -> Experiment:
    """Randomised with another ε; none means that records are only brought to the scale of the mechanisms."""
    stated = NOTHING if epsilon is None else epsilon
    return experiment.changed(model={"records": {"init_args": {"epsilon": stated}}})


def _noisy(label: str, name: str, experiment: Experiment, uploads: tuple[str, ...], repetitions: int) -> list[Row]:
    bounds = {upload: _gaussian(1.0) for upload in uploads}
    rows = [
        Row(label, _column(name, epsilon), _private(experiment, epsilon, bounds), repetitions) for epsilon in EPSILONS
    ]
    return [*rows, Row(label, _column(name, None), experiment.changed(UNPROTECTED_ROUNDS), repetitions)]


def _private(experiment: Experiment, epsilon: float, protection: dict[str, Any], unit: str = "client") -> Experiment:
    guarantee = {"max_epsilon": epsilon, "delta": DELTA, "calibrate": True}
    return experiment.changed(model={"protection": protection | {"unit": unit}, "guarantee": guarantee})


def _citations(**options: Any) -> Experiment:
    """Nothing but the data counts."""
    return Experiment.read("private/randomise_cora").with_data("Citations", options)


def _gaussian(clip: float) -> dict[str, Any]:
    return {"class_path": GAUSSIAN, "init_args": {"clip": clip}}


def _column(name: str, epsilon: float | None) -> str:
    return f"{name}, ε = {'∞' if epsilon is None else format(epsilon, 'g')}"


def _paper(name: str) -> Experiment:
    return Experiment.read(f"paper/{name}")
