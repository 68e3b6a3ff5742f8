"""From the configuration of a fit and a file of sites to the plan of a deployment; what it cannot carry is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from jsonargparse import ArgumentParser
from pytorch_lightning import Callback

from gfl_lightning.checks import InputError, require, require_count
from gfl_lightning.deploy.boxes import SECOND
from gfl_lightning.deploy.masking.options import Masking
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.table_plan import TablePlan
from gfl_lightning.graphs.records.as_they_are import AsTheyAre
from gfl_lightning.graphs.tables.edges import EdgeColumns
from gfl_lightning.graphs.tables.settings import Settings
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.protecting import ProtectingCallback
from gfl_lightning.lit.round_module import RoundModule

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
EDGE_OPTIONS = ("source", "target", "weight")
WHERE = ("samples", "edges", "class_weights", *EDGE_OPTIONS)
DEFENCES = ("topology", "release")
OF_SITES = ("server", "sites", "timeout", "least_sites", "public", "masking", *DEFENCES)
OF_PUBLIC = ("ranges", "categories", "classes")


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
    given, places = _yaml(config, "config"), _yaml(sites, "sites")
    _only(places, OF_SITES, "sites file")
    server = _mapping(places.get("server", {}), "server")
    _only(server, ("host", "port"), "server")
    host, port = str(server.get("host", "localhost")), server.get("port", 8002)
    require_count("server.port", port)
    roster = _roster(_mapping(places.get("sites", {}), "sites"), host)
    data = _section(given, "data")
    require(_class(data) == "ClientTables", "data", "be ClientTables in a deployment", _class(data))
    options = _mapping(data.get("init_args", {}), "data.init_args")
    tables = _tables(options, _mapping(places.get("public", {}), "public"))
    network = {name: places[name] for name in ("timeout", "least_sites", *DEFENCES) if name in places}
    network |= _masking(places, roster)
    plan = _plan(given, tables, network)
    require("edges" in options, "data.edges", "name the table of edges", None)
    edges = Path(str(options["edges"]))
    columns = EdgeColumns(**{name: options.get(name) for name in EDGE_OPTIONS})
    return Deployment(plan, roster, edges, columns, host, port)


def _plan(given: Mapping[str, Any], tables: TablePlan, network: Mapping[str, Any]) -> Plan:
    trainer = _mapping(given.get("trainer", {}), "trainer")
    _only(trainer, ("max_steps", "callbacks"), "trainer")
    stated = _section(given, "model")
    require(_class(stated) == "GFL", "model", "be GFL in a deployment", _class(stated))
    options = _mapping(stated.get("init_args", {}), "model.init_args")
    for name in ("path", "lr_scheduler"):
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
    records = model.records
    require(records == AsTheyAre(), "model.records", "be left out of a deployment", records)
    parts = {name: getattr(model, name) for name in ("estimator", "local", "server", "participation", "weighting")}
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
    known = {field.name for field in fields(Settings)}
    _only(options, (*known, *WHERE), "data")
    _only(public, OF_PUBLIC, "public")
    ranges = {str(name): tuple(ends) for name, ends in _mapping(public.get("ranges", {}), "public.ranges").items()}
    categories = _mapping(public.get("categories", {}), "public.categories")
    return TablePlan(
        Settings.of({name: value for name, value in options.items() if name in known}),
        options.get("class_weights"),
        ranges,
        {str(name): tuple(map(str, values)) for name, values in categories.items()},
        tuple(public.get("classes", ())),
    )


def _masking(places: Mapping[str, Any], roster: Roster) -> dict[str, Any]:
    """Options of masked sums; rounds then wait until enough sites are there to open a sum."""
    if "masking" not in places:
        return {}
    options = _mapping(places["masking"], "masking")
    _only(options, tuple(field.name for field in fields(Masking)), "masking")
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


def _yaml(file: Path, argument: str) -> Mapping[str, Any]:
    require(file.is_file(), argument, "name a file", str(file))
    try:
        return _mapping(yaml.safe_load(file.read_text(encoding="utf-8")), argument)
    except (yaml.YAMLError, UnicodeError) as broken:
        raise InputError(f"{argument} must be a YAML file, got {str(file)!r}: {broken}.") from broken


def _section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _mapping(given.get(name), name)


def _class(section: Mapping[str, Any]) -> str:
    return str(section.get("class_path")).rpartition(".")[2]


def _mapping(value: Any, argument: str) -> Mapping[str, Any]:
    require(isinstance(value, dict), argument, "be a section of options", value)
    return dict(value)


def _only(given: Mapping[str, Any], known: tuple[str, ...], argument: str) -> None:
    others = sorted(set(map(str, given)) - set(known))
    require(not others, argument, f"have options among {', '.join(sorted(known))} in a deployment", others)
