"""Write a small hospital network as tables: ``python examples/hospitals/make_network.py FOLDER [SEED]``.

30 hospitals, each with a profile: how far out in the country it lies and how specialised it is. The profile decides how
often a complication follows an admission, from about one patient in ten to nine in ten, and hospitals with similar
profiles refer patients to each other. What a complication does to the markers in a patient's blood is the same
everywhere, but for habits of each hospital that no other shares. Ten hospitals have 6 to 14 labelled records, five have
30 to 60, the others 150 to 400; the following year brings each 100 patients, on whom models are tested.

Files: ``patients.csv`` and ``referrals.csv`` to train on; ``joined_patients.csv`` and ``joined_referrals.csv``, the
following year without labels and with one more hospital, to predict for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HOSPITALS, NEIGHBOURS, LATER = 30, 4, 100
SIZES = ((10, 6, 14), (5, 30, 60), (15, 150, 400))  # hospitals, least and most labelled records
HABIT, LABORATORY, UNMEASURED = 0.12, 0.1, 0.15
MARKERS = {  # mean, deviation, and by how many deviations a complication moves it up or down
    "age": (61, 15, 0.35),
    "systolic_bp": (131, 18, -0.25),
    "creatinine": (1.1, 0.35, 0.35),
    "haemoglobin": (13.2, 1.6, -0.3),
    "lactate": (1.6, 0.6, 0.3),
}


@dataclass(frozen=True)
class Network:
    """Patients and referrals of the hospitals, and of the following year with one more hospital, the last."""

    patients: pd.DataFrame
    referrals: pd.DataFrame
    joined_patients: pd.DataFrame
    joined_referrals: pd.DataFrame


def make(seed: int) -> Network:
    """Draw a network."""
    draw = np.random.default_rng(seed)
    profile = draw.uniform(-1, 1, (HOSPITALS + 1, 2))
    names = [f"hospital {k:02d}" for k in range(1, HOSPITALS + 2)]
    records = np.concatenate([draw.integers(least, most + 1, n) for n, least, most in SIZES])
    records = np.append(draw.permutation(records), 0)
    patients = pd.concat(
        [_patients(names[k], profile[k], int(records[k]), draw) for k in range(HOSPITALS + 1)], ignore_index=True
    )
    referrals = _referrals(profile, names)
    known = ~referrals.isin([names[-1]]).any(axis=1)
    return Network(
        patients[patients["hospital"] != names[-1]],
        referrals[known],
        patients[patients["split"] == "test"].drop(columns="split"),
        referrals,
    )


def _patients(hospital: str, profile: np.ndarray, records: int, draw: np.random.Generator) -> pd.DataFrame:
    n = records + LATER
    complication = draw.random(n) < 1 / (1 + np.exp(-(1.7 * profile[0] + 1.1 * profile[1] - 0.4)))
    columns: dict[str, Any] = {"hospital": hospital, "patient": [f"P{i:03d}" for i in range(1, n + 1)]}
    for name, (mean, deviation, effect) in MARKERS.items():
        moved = (effect + draw.normal(0, HABIT)) * np.where(complication, 1, -1)
        z = draw.normal(size=n) + moved + draw.normal(0, LABORATORY)
        columns[name] = np.round(mean + deviation * z, 1 if deviation < 10 else 0)
    columns["lactate"] = np.where(draw.random(n) < UNMEASURED, np.nan, columns["lactate"])
    columns["sex"] = draw.choice(["female", "male"], n)
    emergency = draw.random(n) < np.where(complication, 0.55, 0.4)
    columns["admission"] = np.where(emergency, "emergency", "planned")
    columns["complication"] = np.where(complication, "yes", "no")
    columns["split"] = np.repeat(["train", "val", "test"], [records - records // 4, records // 4, LATER])
    return pd.DataFrame(columns)


def _referrals(profile: np.ndarray, names: list[str]) -> pd.DataFrame:
    """Each hospital and the four with the most similar profiles; the weight falls with the distance."""
    distance = np.linalg.norm(profile[:, None] - profile, axis=-1)
    pairs = {tuple(sorted((k, int(j)))) for k in range(len(names)) for j in distance[k].argsort()[1 : NEIGHBOURS + 1]}
    rows = [(names[k], names[j], round(float(np.exp(-(distance[k, j] ** 2))), 3)) for k, j in sorted(pairs)]
    return pd.DataFrame(rows, columns=["hospital", "refers_to", "weight"])


def write(network: Network, folder: Path) -> None:
    """Write the four tables, those to predict for without labels."""
    folder.mkdir(parents=True, exist_ok=True)
    network.patients.to_csv(folder / "patients.csv", index=False)
    network.referrals.to_csv(folder / "referrals.csv", index=False)
    network.joined_patients.drop(columns="complication").to_csv(folder / "joined_patients.csv", index=False)
    network.joined_referrals.to_csv(folder / "joined_referrals.csv", index=False)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("usage: python examples/hospitals/make_network.py FOLDER [SEED]")
    made = make(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    write(made, Path(sys.argv[1]))
    print(f"{len(made.patients)} patients of {HOSPITALS} hospitals, {len(made.referrals)} referrals: {sys.argv[1]}/")
