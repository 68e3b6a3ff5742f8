"""Tables and the figures of the studies of privacy."""

from __future__ import annotations

from gfl_lightning.reports.style import LINES, canvas
from gfl_lightning.studies.cell import Row
from gfl_lightning.studies.drawing import MARKS, Picture, legend_once, points, within_percent
from gfl_lightning.studies.markdown import mean_of, number, plus_minus, table
from gfl_lightning.studies.outcome import Outcome
from gfl_lightning.studies.private_rows import epsilon_of
from gfl_lightning.studies.statistics import estimate

CLIENTS = (
    "Clients have one sample each, and all of a client's data are hidden. *Randomise once* is "
    "`configs/private/randomise_cora.yaml` everywhere: pure ε (δ = 0) against everybody, whatever the rounds; how deep "
    "records travel is chosen in each training by the loss on randomised validation labels, inside the guarantee. "
    "*Labels only* withholds all features and spends ε on the labels in use. *Noise in every round* is V1 with bounds "
    "of 1 on ĥ_j and W_k − W̄ and the least Gaussian noise that keeps 5 rounds of 10 steps within (ε, 10⁻⁵); "
    "*no graph* is FedAvg of an MLP with the same on W_k − W̄. The round that these keep is chosen by exact "
    "validation losses, which their ε does not cover. ε = ∞ is the same method without randomness, with 40 rounds "
    "where noise allows 5. The held-out citations are `Citations` with its defaults, networks of about CiteSeer's "
    "statistics, drawn anew in every repetition, which no setting was selected on."
)
SAMPLES = (
    "SNC: 40 samples and one label per client, all of a client's data hidden, one draw of their mean each (`pooled`). "
    "SC: 50 clients with 1000 samples each, one sample hidden: `configs/private/randomise_sc.yaml` (pure ε) against "
    "bounds and DP-SGD in every round (30 rounds of 5 steps, δ = 10⁻⁵; its round is chosen by exact validation losses, "
    "which its ε does not cover)."
)
SETTINGS = (
    "Accuracy in per cent on the validation samples, estimated from their randomised labels alone: "
    "(agreement − β/c)/(1 − β). Test accuracy takes no part. *Citations* are synthetic networks of 2000 documents with "
    "500 words, so that trying several splits of ε spends nobody's privacy; on SC the data are synthetic as well. One "
    "setting is changed at a time, on the same networks as the configured ones, and takes their place if the 95 % "
    "interval of the difference lies above 0."
)


def clients(outcome: Outcome) -> str:
    """Accuracy against ε where clients have one sample."""
    return "\n\n".join([CLIENTS, *_tables(outcome, "privacy")])


def samples(outcome: Outcome) -> str:
    """Accuracy against ε where they have many."""
    return "\n\n".join([SAMPLES, *_tables(outcome, "samples")])


def settings(outcome: Outcome) -> str:
    """Accuracy on randomised validation labels by setting."""
    parts = [SETTINGS]
    for name, rows in _by_data(outcome.studies["settings"]).items():
        lines = [
            [row.label, plus_minus(outcome.accuracy(row, "val_accuracy")), _gain(outcome, row, rows[0])] for row in rows
        ]
        parts.append(table([f"**{name}**", "randomised validation", "difference, paired"], lines))
    return "\n\n".join(parts)


def _gain(outcome: Outcome, row: Row, configured: Row) -> str:
    """How much better a row is than the configured one, repetition by repetition."""
    pairs = zip(outcome.values(row, "val_accuracy"), outcome.values(configured, "val_accuracy"), strict=True)
    return "" if row is configured else plus_minus(estimate([100 * (one - other) for one, other in pairs]))


def clients_pictures(outcome: Outcome) -> list[Picture]:
    """The figure of clients with one sample."""
    return _pictures(outcome, "privacy")


def samples_pictures(outcome: Outcome) -> list[Picture]:
    """The figure of clients with many."""
    return _pictures(outcome, "samples")


def _pictures(outcome: Outcome, study: str) -> list[Picture]:
    """A panel for each data set, accuracy against ε with 95 % intervals; dashed: ε = ∞."""
    rows = outcome.studies[study]
    panels = _by_data(rows)
    labels = list(dict.fromkeys(row.label for row in rows))
    figure = canvas(3.6 * len(panels), 3.8)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, some) in zip(grid, panels.items(), strict=True):
        for label in (label for label in labels if any(row.label == label for row in some)):
            place = labels.index(label)
            found = [(row.experiment.epsilon, outcome.accuracy(row)) for row in some if row.label == label]
            finite = [(epsilon, one) for epsilon, one in found if epsilon is not None and one is not None]
            style = points(LINES[place], MARKS[place]) | {"linestyle": "-", "label": label}
            x, y = [epsilon for epsilon, _ in finite], [one.mean for _, one in finite]
            axes.errorbar(x, y, yerr=[one.half_width for _, one in finite], **style)
            for one in (one for epsilon, one in found if epsilon is None and one is not None):
                axes.axhline(one.mean, color=LINES[place], linewidth=1, linestyle="--")
        axes.set(xscale="log", xlabel="ε", title=name)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.minorticks_off()
        within_percent(axes.get_ylim, axes.set_ylim)
    grid[0].set_ylabel("test accuracy (%)")
    legend_once(figure, grid)
    caption = "Accuracy against ε with 95 % intervals, by data set; dashed: the same method at ε = ∞."
    return [Picture(study, caption, figure)]


def _tables(outcome: Outcome, study: str) -> list[str]:
    """A table for each data set: a line for each method, a column for each ε, and the seconds of a training."""
    made = []
    for name, rows in _by_data(outcome.studies[study]).items():
        epsilons = list(dict.fromkeys(epsilon_of(row.column) for row in rows))
        lines = []
        for label in dict.fromkeys(row.label for row in rows):
            own = {epsilon_of(row.column): row for row in rows if row.label == label}
            seconds = mean_of([value for row in own.values() for value in outcome.values(row, "seconds")])
            found = (plus_minus(outcome.accuracy(own[epsilon])) if epsilon in own else "" for epsilon in epsilons)
            repetitions = max(row.repetitions for row in own.values())
            lines.append([label, *found, f"{repetitions}", f"{number(seconds)} s"])
        head = [f"**{name}**", *(f"ε = {epsilon}" for epsilon in epsilons), "repetitions", "a training"]
        made.append(table(head, lines))
    return made


def _by_data(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by what their columns say before ε."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.column.partition(", ε")[0], []).append(row)
    return found
