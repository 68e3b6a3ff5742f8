"""The tables of our own studies."""

from __future__ import annotations

from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.markdown import mean_of, number, plus_minus, table
from gfl_lightning.studies.outcome import Outcome


def cora(outcome: Outcome) -> str:
    """2708 clients against centralised networks."""
    text = "2708 clients, one per paper, 140 of them labelled (public split), raw features; over seeds of the weights."
    lines = [
        [row.label, plus_minus(outcome.accuracy(row)), number(mean_of(outcome.values(row, "seconds"))) + " s"]
        for row in outcome.studies["cora"]
    ]
    return "\n\n".join([text, table(["method", "accuracy", "seconds a run"], lines)])


def staleness(outcome: Outcome) -> str:
    """Three estimators against I."""
    text = (
        "Synthetic DNC, 3000 updates. σ_H² is the mean of ‖g_k − ∇F_k(W_k)‖² over clients and over the local steps of "
        "a round, g_k being the gradient that the estimator takes; ‖∇F‖² the mean over rounds of ‖∇F(W̄)‖². The exact "
        "estimator recomputes everyone's representation at the client's own weights, which no federation could do."
    )
    lines = [
        [
            row.label,
            row.column.removeprefix("I="),
            plus_minus(outcome.accuracy(row)),
            number(mean_of(outcome.values(row, "grad_norm_squared"))),
            number(mean_of(outcome.values(row, "sigma_H_squared"))),
            number(mean_of(outcome.values(row, "representation_error"))),
        ]
        for row in outcome.studies["staleness"]
    ]
    head = ["estimator", "I", "accuracy", "mean ‖∇F(W̄)‖²", "σ_H²", "mean ‖C_k(W̄) − C_k(W_k)‖²"]
    return "\n\n".join([text, table(head, lines)])


def theory(outcome: Outcome) -> str:
    """Both sides of the bound."""
    text = (
        "SC on cSBM graphs (N = 40, degree 10, I = 10 unless swept; η = 0.1, T = 1000, batches of 5). The left side of "
        "the bound, (1/T) Σ_t ‖∇F(W̄^t)‖², is taken over the rounds' W̄; the terms of its right side stand without "
        "their constants: 1/(ηT), I²η²σ_G²/N, I²η²σ_H² and I²η²κ²λ_max/N, with σ_G², σ_H² and κ² measured along the "
        "run."
    )
    lines = [
        [row.label, row.column, *(number(value) for value in theory_terms(outcome, row).values())]
        for row in outcome.studies["theory"]
    ]
    names = ["λ_max", "(1/T) Σ ‖∇F‖²", "1/(ηT)", "I²η²σ_G²/N", "I²η²σ_H²", "I²η²κ²λ_max/N"]
    return "\n\n".join([text, table(["swept", "value", *names], lines)])


def theory_terms(outcome: Outcome, row: Row) -> dict[str, float]:
    """λ_max, the bound's left side and the four terms of its right side, means over repetitions."""
    mean = {
        name: mean_of(outcome.values(row, name))
        for name in ("lambda_max", "grad_norm_squared", "sigma_G_squared", "sigma_H_squared", "kappa_squared")
    }
    experiment = row.experiment
    N, drift = experiment.data_options["num_clients"], (experiment.steps * experiment.lr) ** 2
    return {
        "lambda_max": mean["lambda_max"],
        "left": mean["grad_norm_squared"],
        "start": 1 / (experiment.lr * experiment.updates),
        "batches": drift * mean["sigma_G_squared"] / N,
        "staleness": drift * mean["sigma_H_squared"],
        "neighbours": drift * mean["kappa_squared"] * mean["lambda_max"] / N,
    }
