"""The page of the audit: every defence on every data set, a reason for every gap, findings made from the numbers."""

from __future__ import annotations

from typing import Any

from gfl_lightning.audit.findings import Finding
from gfl_lightning.studies.audit_answers import QUESTIONS
from gfl_lightning.studies.audit_page import page
from gfl_lightning.studies.audit_rows import BOTH, audit
from gfl_lightning.studies.outcome import Outcome

COLUMNS = ("SubCora DNC", "Cora", "Synthetic SNC", "Synthetic SC")


def finding(attack: str, adversary: str, success: float, beats: bool, proved: float | None = None) -> dict[str, Any]:
    texts = (adversary, attack, "an aim", "knowledge", "a measure")
    verdict = f"{attack} reads all" if beats else "no better than guessing"
    one = Finding(*texts, 10, success, success - 0.05, success + 0.05, 0.2, 0.0, beats, verdict)
    return one.as_dict() | {"empirical_epsilon": proved}


def outcome(proved: float = 2.0) -> Outcome:
    rows, records = audit(1), {}
    for row in rows:
        safe = row.label.startswith("bounds")
        found = [finding("RankOne", "server", 0.9, not safe), finding("WhichWorld", "server", 0.8, not safe, proved)]
        found += (
            []
            if row.label == "V1"
            else [finding("NeighbourRecords", "fellow client", 0.5, row.label in ("none", BOTH))]
        )
        accuracy = 0.3 if safe else 0.8
        record = {"accuracy": accuracy, "accuracies": [accuracy] * 2, "findings": found, "seconds": 1.0}
        epsilon = float(row.label.split()[-1]) if "ε" in row.label else None
        records[row.cells[0]] = record | {"nominal_epsilon": epsilon, "diverged": False}
    return Outcome({"audit": rows}, records, "a command", quick=False)


def test_every_defence_is_tried_on_every_data_set() -> None:
    rows = audit(1)
    by_column = {column: [row.label for row in rows if row.column == column] for column in COLUMNS}
    assert {row.column for row in rows} == set(COLUMNS)
    assert all(labels == by_column["Cora"] for labels in by_column.values())
    assert len(by_column["Cora"]) == len(set(by_column["Cora"])) == 23


def test_the_page_opens_with_findings_and_has_a_reason_for_every_gap() -> None:
    text = page(outcome(), [("audit", "a caption"), ("audit_cora", "another")])
    found, glance, attacks = (
        text.index(f"\n## {title}") for title in ("What was found", "Cora: at a glance", "Attack by")
    )
    assert text.index("images/results/audit.png") < found < glance < text.index("audit_cora.png") < attacks
    assert "**Cora, no defence:** RankOne reads all; WhichWorld reads all; NeighbourRecords reads all." in text
    assert "**Nothing beats guessing** under bounds and noise, ε = 1 (accuracy -50.0 points)" in text
    lines = [line for line in text[glance:attacks].splitlines() if line.startswith("| V1 ")]
    assert lines
    assert all(line.count("|") == len(QUESTIONS) + 4 and "*not sent*" in line and "—" not in line for line in lines)
    assert "*as none*" in next(line for line in text[glance:].splitlines() if line.startswith("| rotation "))


def test_the_page_says_whether_a_claimed_epsilon_is_refuted() -> None:
    text = page(outcome(0.5), [])
    assert "0.5 of 1, 0.5 of 4, 0.5 of 8, 0.5 of 100. No claim is refuted." in text
    assert "**A claim is refuted.**" in page(outcome(2.0), [])
