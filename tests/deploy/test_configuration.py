"""From a fit's configuration and a file of sites to a plan; what a deployment cannot carry is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_builders import SITES, make_tables

from gfl_lightning.checks import InputError
from gfl_lightning.deploy.configuration import Deployment, read_deployment
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.federated.local.options import LocalTraining
from gfl_lightning.federated.participation import Participation
from gfl_lightning.models.aggregators.sgc import SGC
from gfl_lightning.privacy.mechanisms.gaussian_noise import Gaussian
from gfl_lightning.privacy.randomise.once import RandomisedOnce


def files(folder: Path, **changed: Any) -> tuple[Path, Path]:
    """A configuration and a file of sites, with some sections changed."""
    make_tables(folder)
    config: dict[str, Any] = {
        "trainer": {"max_steps": 7},
        "model": {"class_path": "GFL", "init_args": {"local": {"lr": 0.1, "steps": 2}}},
        "data": {
            "class_path": "ClientTables",
            "init_args": {"samples": "s.csv", "edges": str(folder / "edges.csv"), "task": "sc"},
        },
    }
    sites: dict[str, Any] = {
        "server": {"host": "localhost", "port": 8002},
        "sites": {k: list(v) for k, v in SITES.items()},
    }
    for name, value in changed.items():
        section = config if name in (*config, "optimizer") else sites
        if value is None:
            section.pop(name)
        else:
            section[name] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "sites.yaml").write_text(yaml.safe_dump(sites))
    return folder / "config.yaml", folder / "sites.yaml"


def read(folder: Path, **changed: Any) -> Deployment:
    return read_deployment(*files(folder, **changed))


def test_a_plan_is_the_fits_with_its_parts(tmp_path: Path) -> None:
    model = {
        "class_path": "GFL",
        "init_args": {
            "aggregator": {"class_path": "SGC", "init_args": {"k": 3}},
            "local": {"lr": 0.1, "steps": 2, "batch_size": 4},
            "participation": {"share": 0.5},
            "estimator": "v1",
            "seed": 9,
        },
    }
    noise = {
        "class_path": "callbacks.DPNoise",
        "init_args": {"hidden": {"class_path": "Gaussian", "init_args": {"std": 1.0, "clip": 2.0}}},
    }
    found = read(tmp_path, model=model, trainer={"max_steps": 7, "callbacks": [noise]}, timeout=30)
    plan = found.plan
    assert (plan.rounds, plan.seed, plan.estimator, plan.timeout) == (7, 9, "v1", 30)
    assert plan.aggregator == SGC(k=3)
    assert plan.local == LocalTraining(0.1, 2, 4)
    assert plan.participation == Participation(share=0.5)
    assert plan.protection.hidden == Gaussian(1.0, 2.0)
    assert not plan.reports_metrics
    assert Plan.from_state(plan.state()) == plan
    assert found.roster.numbers("south") == [1]


def test_records_that_are_randomised_at_their_site_are_part_of_the_plan(tmp_path: Path) -> None:
    once = {"class_path": "callbacks.RandomiseOnce", "init_args": {"epsilon": 4.0}}
    budget = {"class_path": "callbacks.PrivacyBudget", "init_args": {"max_epsilon": 8.0}}
    plan = read(tmp_path, trainer={"max_steps": 7, "callbacks": [once, budget]}).plan
    assert plan.records == RandomisedOnce(4.0)
    assert plan.guarantee.max_epsilon == 8.0
    assert Plan.from_state(plan.state()) == plan


def test_defences_are_options_of_the_sites_file(tmp_path: Path) -> None:
    plain = read(tmp_path).plan
    assert (plain.topology, plain.release, plain.masking) == ("one_server", False, Masking())
    assert read(tmp_path, topology="two_servers", release=True).plan.release
    masked = read(tmp_path, masking={"bits": 32, "fraction": 20}).plan
    assert masked.masking == Masking(on=True, bits=32, fraction=20)
    assert masked.least_sites == 3
    assert Plan.from_state(masked.state()) == masked


def gfl(options: dict[str, Any]) -> dict[str, Any]:
    return {"class_path": "GFL", "init_args": options}


def tables(options: dict[str, Any]) -> dict[str, Any]:
    return {"class_path": "ClientTables", "init_args": options}


def with_callback(callback: dict[str, Any]) -> dict[str, Any]:
    return {"max_steps": 7, "callbacks": [callback]}


SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"model": {"class_path": "Central"}}, "model must be GFL in a deployment, got 'Central'"),
    ({"data": {"class_path": "DNC"}}, "data must be ClientTables in a deployment, got 'DNC'"),
    ({"model": gfl({"estimator": "exact"})}, "estimator must be compensated or v1 in a deployment"),
    ({"model": gfl({"path": "dual"})}, "model.path must be left out of a deployment, got 'dual'"),
    (
        {"model": gfl({"aggregator": {"class_path": "ChosenAPPNP"}})},
        "model.aggregator must be a fixed one in a deployment, where trials would be rounds, got ChosenAPPNP",
    ),
    ({"model": gfl({"wings": 2})}, "config must be one that fit takes"),
    ({"trainer": {"max_steps": 7, "precision": "64-true"}}, "trainer must have options among callbacks, max_steps"),
    ({"trainer": {"max_steps": 0}}, "max_steps must be at least 1, got 0"),
    ({"trainer": {}}, "max_steps must be at least 1, got -1"),
    (
        {"trainer": with_callback({"class_path": "pytorch_lightning.callbacks.Timer"})},
        "trainer.callbacks must be ones that protect uploads in a deployment, got 'Timer'",
    ),
    (
        {"trainer": with_callback({"class_path": "callbacks.PrivacyBudget", "init_args": {"max_epsilon": 8.0}})},
        "max_epsilon must be left out where nothing is protected",
    ),
    ({"data": tables({"task": "sc", "edges": "e.csv", "wings": 2})}, "data must have options among"),
    ({"data": tables({"task": "sc", "client": [[1]]})}, r"data.client must be .*, got \[\[1\]\]"),
    ({"data": tables({"task": "sc", "fractions": "half"})}, "data.fractions must be .*, got 'half'"),
    ({"data": tables({"task": "sc"})}, "data.edges must name the table of edges, got None"),
    ({"sites": {}}, "sites must name at least one site"),
    ({"sites": {"north": ["a"], "south": ["a"]}}, r"sites must have every client once, got \['a'\]"),
    ({"sites": {"north": []}}, "sites.north must have at least one client"),
    ({"sites": {"no rth": ["a"]}}, "sites must have names of letters, digits, points and dashes"),
    ({"sites": {"localhost": ["a"]}}, "sites must have names .* other than the server's, got 'localhost'"),
    ({"sites": {"north": "a"}}, "sites.north must be a list of clients, got 'a'"),
    ({"server": {"port": "x"}}, "server.port must be a whole number of at least 1, got 'x'"),
    ({"server": {"door": 1}}, "server must have options among host, port"),
    ({"public": {"ages": {}}}, "public must have options among"),
    ({"public": {"ranges": {"age": 5}}}, "public.ranges.age must be a list of values, got 5"),
    ({"public": {"ranges": {"age": ["a", "b"]}}}, "ranges.age must be two numbers, the smaller one first"),
    ({"public": {"ranges": 3}}, "public.ranges must be a section of options, got 3"),
    ({"public": {"categories": {"ward": {"A": 1}}}}, "public.categories.ward must be a list of values"),
    ({"public": {"classes": "well"}}, "public.classes must be a list of values, got 'well'"),
    ({"public": "none"}, "public must be a section of options, got 'none'"),
    ({"sites": {"north": [["a"]]}}, "sites.north must be a list of names"),
    ({"sites": ["north"]}, "sites must be a section of options"),
    ({"server": {"port": 70000}}, "server.port must be less than 65536, got 70000"),
    ({"server": {"host": "fl example"}}, "server.host must be a name or an address, got 'fl example'"),
    ({"server": "here"}, "server must be a section of options, got 'here'"),
    ({"timeout": "long"}, "timeout must be positive, got 'long'"),
    ({"timeout": float("nan")}, "timeout must be positive, got nan"),
    ({"least_sites": 1.5}, "least_sites must be a whole number of at least 1, got 1.5"),
    ({"least_sites": 4}, "least_sites must be at most 3, as many as there are, got 4"),
    ({"data": tables({"task": "sc", "loss": "SquaredError"})}, "data.loss must be left out of a deployment, whose"),
    ({"data": tables({"task": "sc", "clients": "c.csv"})}, "data.clients must be left out of a deployment, where each"),
    ({"data": tables({"task": "sc", "neighbours": 5})}, "data.neighbours must be left out .*; name edges, got 5"),
    ({"data": tables({"task": "sc", "public": {}})}, "data.public must stand in the sites file"),
    ({"data": tables({"task": "sc", "split_by": "day"})}, "split_by must be left out, as no site knows the others"),
    ({"optimizer": "Adam"}, r"config must have options among data, .* got \['optimizer'\]"),
    ({"model": gfl({"noise_seed": 3})}, "model.noise_seed must be left out of a deployment, got 3"),
    ({"model": gfl({"personal": {"class_path": "Gate"}})}, "model.personal must be left out of a deployment"),
    ({"model": gfl({"mix": {"steps": [10]}})}, "model.mix must be left out of a deployment"),
    ({"model": gfl({"personal": {"class_path": "OwnLevel"}})}, "model.personal must be left out of a deployment"),
    ({"model": gfl({"records": {"class_path": "Rotated"}})}, "records must be made of a client's own rows in a deploy"),
    ({"timeout": -1}, "timeout must be positive, got -1"),
    ({"topology": "ring"}, "topology must be one of one_server, two_servers, got 'ring'"),
    ({"release": "yes"}, "release must be true or false, got 'yes'"),
    ({"masking": {"bits": 16}}, "bits must be 32 or 64, got 16"),
    ({"masking": {"colour": 1}}, "masking must have options among bits, colluding, fraction"),
    ({"masking": {"on": 1}}, "masking.on must be true or false, got 1"),
    ({"masking": {}, "least_sites": 2}, "least_sites must be at least 3, who open a masked sum, got 2"),
    ({"masking": {}, "sites": {"north": ["a"], "south": ["b"]}}, "sites must be at least 3 for masked sums, got 2"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "sentence"), SECTIONS)
def test_what_a_deployment_cannot_carry_is_refused(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, **changed)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    config, sites = files(tmp_path)
    with pytest.raises(InputError, match="config must name a file"):
        read_deployment(tmp_path / "none.yaml", sites)
    sites.write_text("a: [")
    with pytest.raises(InputError, match="sites must be a YAML file"):
        read_deployment(config, sites)
