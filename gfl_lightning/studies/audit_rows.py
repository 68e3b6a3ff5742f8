"""The audit: every defence on every data set, each one federation that is attacked by everybody."""

from __future__ import annotations

from typing import Any

from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.experiment import Experiment
from gfl_lightning.studies.published import NOISE_LEVELS, SC, SNC, SUBCORA

EPSILONS = (1.0, 8.0, 100.0)
DELTA = 1e-5
PRIVATE_ROUNDS = 10
RANDOMISED = tuple(f"randomised once, ε = {epsilon}" for epsilon in (1, 4, 8))
GAUSSIAN = "gfl_lightning.privacy.mechanisms.gaussian_noise.Gaussian"
CORA = "Cora"
BOTH = "both of two servers"
"""What the two know together is what the one server of the paper's protocol knows: the same cell."""


def audit(repetitions: int) -> list[Row]:
    """All defences on subCora, Cora, SNC and SC; one repetition, whatever is asked for."""
    plain = {
        SUBCORA: _paper("dnc_subcora"),
        CORA: _paper("dnc_cora").changed(model={"protocol": "jacobian"}),
        SNC: _paper("snc_synthetic").changed(120),
        SC: _paper("sc_synthetic"),
    }
    return [row for column, experiment in plain.items() for row in _defended(column, experiment)]


def _defended(column: str, plain: Experiment) -> list[Row]:
    """A data set under every defence."""

    def row(label: str, audit: str, rounds: int | None = None, **model: Any) -> Row:
        return Row(label, column, plain.changed(rounds, model) if model else plain, 1, audit=audit)

    noisy, levels = {"hn": ("hidden",), "hn_gn": ("hidden", "jacobian")}, NOISE_LEVELS[1:]
    half = {"train": 0.5, "share": 0.5}
    return [
        row("none", "with shadows"),
        row("V1", "with shadows", estimator="v1"),
        row("Gram", "plain", protocol="gram"),
        *(
            row(f"{kind} {level:g}", "plain", protection=_gaussian(uploads, std=level), noise_seed=0)
            for kind, uploads in noisy.items()
            for level in levels
        ),
        *(
            row(
                f"bounds and noise, ε = {epsilon:g}",
                "one seed" if column == CORA else "with shadows",
                PRIVATE_ROUNDS,
                protection=_gaussian(("hidden", "jacobian", "update"), clip=1.0),
                guarantee={"max_epsilon": epsilon, "delta": DELTA, "calibrate": True},
            )
            for epsilon in EPSILONS
        ),
        *(row(name, name) for name in RANDOMISED),
        row("first of two servers", "first of two servers"),
        row("second of two servers", "second of two servers"),
        row(BOTH, "with shadows"),
        row("server that forgets", "server that forgets"),
        row("rotation", "rotation"),
        row("half take part", "plain", participation=half),
    ]


def _gaussian(uploads: tuple[str, ...], **options: float) -> dict[str, Any]:
    return {upload: {"class_path": GAUSSIAN, "init_args": options} for upload in uploads}


def _paper(name: str) -> Experiment:
    return Experiment.read(f"paper/{name}")
