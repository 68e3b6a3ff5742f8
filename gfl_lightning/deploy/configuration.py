"""From the configuration of a fit and a file of sites to the plan of a deployment; what it cannot carry is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser
from pytorch_lightning import Callback

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.sections import class_of, listed, mapping, read_yaml, require_only, section
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.settings import Settings
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.lit.round_module import RoundModule
from gfl_lightning.models.aggregators.chosen_appnp import ChosenAPPNP
from gfl_lightning.parts import typed

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252})")
SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
EDGE_OPTIONS = ("source", "target", "weight")
WHERE = ("samples", "edges", "class_weights", *EDGE_OPTIONS)
DEFENCES = ("topology", "release")
OF_SITES = ("server", "sites", "timeout", "least_sites", "public", "masking", *DEFENCES)
OF_PUBLIC = ("ranges", "categories", "classes")
OF_CONFIG = ("trainer", "model", "data", "seed_everything")
LEFT_OUT = ("path", "lr_scheduler", "noise_seed")
ELSEWHERE = {
    "loss": "be left out of a deployment, whose labels are classes",
    "clients": "be left out of a deployment, where each site has the columns of its clients in its own table",
    "neighbours": "be left out of a deployment, as nobody sees the features of all clients; name edges",
    "near": "be left out of a deployment, as nobody sees the features of all clients; name edges",
    "distance": "be left out of a deployment, as nobody sees the features of all clients; name edges",
    "public": "stand in the sites file, as it is everybody's",
    "encoding": "be left out of a deployment, whose sites agree on one",
    "representations": "be left out of a deployment, which begins anew",
}


@dataclass(frozen=True)
class Deployment:
    """A plan with the places that it is for.

    Args:
        plan: what is done.
        roster: which clients are at which site.
        edges: the table of edges.
        edge_columns: its columns.
        host: name or address of the server, as the sites know it.
        port: of the server.
    """

    plan: Plan
    roster: Roster
    edges: Path
    edge_columns: EdgeColumns
    host: str
    port: int


def read_deployment(config: Path, sites: Path) -> Deployment:
    """Read both files."""
    given, places = read_yaml(config, "config"), read_yaml(sites, "sites")
    require_only(given, OF_CONFIG, "config")
    require_only(places, OF_SITES, "sites file")
    server = mapping(places.get("server", {}), "server")
    require_only(server, ("host", "port"), "server")
    host, port = str(server.get("host", "localhost")), server.get("port", 8002)
    require_count("server.port", port)
    require(port < 2**16, "server.port", "be less than 65536", port)
    require(HOST_NAME.fullmatch(host) is not None, "server.host", "be a name or an address", host)
    roster = _roster(mapping(places.get("sites", {}), "sites"), host)
    data = section(given, "data")
    require(class_of(data) == "ClientTables", "data", "be ClientTables in a deployment", class_of(data))
    options = mapping(data.get("init_args", {}), "data.init_args")
    tables = _tables(options, mapping(places.get("public", {}), "public"))
    network = {name: places[name] for name in ("timeout", "least_sites", *DEFENCES) if name in places}
    network |= _masking(places, roster)
    plan = _plan(given, tables, network)
    count = len(roster.sites)
    require(plan.least_sites <= count, "least_sites", f"be at most {count}, as many as there are", plan.least_sites)
    require("edges" in options, "data.edges", "name the table of edges", None)
    edges = Path(str(options["edges"]))
    columns = EdgeColumns(**{name: options.get(name) for name in EDGE_OPTIONS})
    return Deployment(plan, roster, edges, columns, host, port)


def _plan(given: Mapping[str, Any], tables: TablePlan, network: Mapping[str, Any]) -> Plan:
    trainer = mapping(given.get("trainer", {}), "trainer")
    require_only(trainer, ("max_steps", "callbacks"), "trainer")
    stated = section(given, "model")
    require(class_of(stated) == "GFL", "model", "be GFL in a deployment", class_of(stated))
    options = mapping(stated.get("init_args", {}), "model.init_args")
    for name in LEFT_OUT:
        require(
            options.get(name, "auto") in ("auto", None),
            f"model.{name}",
            "be left out of a deployment",
            options.get(name),
        )
    model = _built(RoundModule, {**stated, "init_args": {**options, "num_features": 1, "num_classes": 2}})
    assert isinstance(model, GFL)
    for callback in trainer.get("callbacks") or []:
        _protect(model, _built(Callback, callback))
    require(model.personal.is_inert, "model.personal", "be left out of a deployment", model.personal)
    require(model.mix.is_inert, "model.mix", "be left out of a deployment", model.mix)
    offered, rule = model.model.aggregator, "be a fixed one in a deployment, where trials would be rounds"
    require(not isinstance(offered, ChosenAPPNP), "model.aggregator", rule, offered)
    named = ("estimator", "local", "server", "participation", "weighting", "records")
    parts = {name: getattr(model, name) for name in named}
    return Plan(
        tables,
        trainer.get("max_steps", -1),
        encoder=model.model.encoder.encoder,
        aggregator=model.model.aggregator,
        protection=model.account.stated,
        guarantee=model.account.guarantee,
        protocol=model.protocol,
        seed=model.seed,
        **parts,
        **network,
    )


def _protect(model: GFL, callback: Any) -> None:
    protecting = isinstance(callback, ProtectingCallback)
    require(protecting, "trainer.callbacks", "be ones that protect uploads in a deployment", type(callback).__name__)
    model.protect(**callback.stated)


def _tables(options: Mapping[str, Any], public: Mapping[str, Any]) -> TablePlan:
    known = get_type_hints(Settings)
    for name, rule in ELSEWHERE.items():
        require(options.get(name) is None, f"data.{name}", rule, options.get(name))
    require_only(options, (*known, *WHERE, *ELSEWHERE), "data")
    require_only(public, OF_PUBLIC, "public")
    stated = [name for name in known if options.get(name) is not None]
    ranges, categories = (
        {
            str(column): tuple(listed(values, f"public.{name}.{column}"))
            for column, values in mapping(public.get(name, {}), f"public.{name}").items()
        }
        for name in ("ranges", "categories")
    )
    return TablePlan(
        Settings.of({name: typed(options[name], known[name], f"data.{name}") for name in stated}),
        options.get("class_weights"),
        ranges,
        {column: tuple(map(str, values)) for column, values in categories.items()},
        tuple(listed(public.get("classes", []), "public.classes")),
    )


def _masking(places: Mapping[str, Any], roster: Roster) -> dict[str, Any]:
    """Options of masked sums; rounds then wait until enough sites are there to open a sum."""
    if "masking" not in places:
        return {}
    options = mapping(places["masking"], "masking")
    require_only(options, tuple(field.name for field in fields(Masking)), "masking")
    masking = Masking(**{"on": True, **options})
    if not masking.on:
        return {"masking": masking}
    needed = max(masking.quorum.threshold_of(len(roster.sites)), masking.least + 1)
    least = places.get("least_sites", needed)
    require_count("least_sites", least)
    require(least >= needed, "least_sites", f"be at least {needed}, who open a masked sum", least)
    return {"masking": masking, "least_sites": least}


def _roster(sites: Mapping[str, Any], host: str) -> Roster:
    for name, clients in sites.items():
        fits = isinstance(name, str) and SITE_NAME.fullmatch(name) is not None and name not in ("server", SECOND, host)
        require(fits, "sites", "have names of letters, digits, points and dashes other than the server's", name)
        require(isinstance(clients, list), f"sites.{name}", "be a list of clients", clients)
        nested = [one for one in clients if one is None or isinstance(one, (list, dict))]
        require(not nested, f"sites.{name}", "be a list of names", nested[:1])
    return Roster({name: tuple(map(str, clients)) for name, clients in sites.items()})


def _built(kind: type[Any], description: Any) -> Any:
    """The object of a class path and nested options, read as the command line reads them."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, "part")
    try:
        return parser.instantiate(parser.parse_object({"part": description}))["part"]
    except InputError:
        raise
    except Exception as broken:
        mistake = broken.__cause__ or broken.__context__
        if isinstance(mistake, InputError):
            raise mistake from broken
        raise InputError(f"config must be one that fit takes, got {str(broken).strip()}") from broken
