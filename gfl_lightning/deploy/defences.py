"""From a plan to what its defences put in place of the plain server and the plain site, and the keys they know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from gfl_lightning.deploy.aggregation import Aggregation, PlainAggregation
from gfl_lightning.deploy.masking.aggregation import MaskedAggregation
from gfl_lightning.deploy.masking.contributions import SharedVectors
from gfl_lightning.deploy.masking.keys import Identity
from gfl_lightning.deploy.masking.site import IDENTITY, MaskedSite
from gfl_lightning.deploy.plan import Plan
from gfl_lightning.deploy.roster import Roster
from gfl_lightning.deploy.site_party import SiteParty
from gfl_lightning.deploy.topology import Forgetting
from gfl_lightning.deploy.two_servers import SECOND_IDENTITY, TwoServers, TwoServerSite
from gfl_lightning.federated.protocol.server_party import ServerParty
from gfl_lightning.models.model import Model

IDENTITIES = "identities.json"


def aggregation_for(plan: Plan, roster: Roster) -> Callable[[ServerParty], Aggregation]:
    """What makes aggregates and averages at the server."""
    if plan.masking.on:
        site_of = {client: site for site, clients in roster.sites.items() for client in clients}
        sites = [site_of[client] for client in roster.clients]
        return lambda server: MaskedAggregation(
            server, plan.masking, _vectors(plan, server.model), sites, roster.clients, plan.noise
        )
    if plan.topology == "two_servers":
        return lambda server: TwoServers(server, roster, plan.release)
    return Forgetting if plan.release else PlainAggregation


def party_for(plan: Plan, site: str, folder: Path) -> Callable[[SiteParty], SiteParty]:
    """What speaks for the clients of a site."""
    if plan.masking.on:
        known = folder / IDENTITIES
        trusted = (
            {name: bytes.fromhex(key) for name, key in json.loads(known.read_text()).items()} if known.exists() else {}
        )
        return lambda party: MaskedSite(
            party, plan.masking, _vectors(plan, party.model), site, folder, trusted, plan.noise
        )
    if plan.topology == "two_servers":
        return lambda party: TwoServerSite(party, site, folder)
    return lambda party: party


def write_identities(plan: Plan, sites: Mapping[str, Path], second: Path) -> None:
    """Keys that parties sign with, and whom each must meet, so that no server can stand in for another party."""
    if plan.masking.on:
        public = {site: Identity.kept_in(folder / IDENTITY).public.hex() for site, folder in sites.items()}
        for folder in sites.values():
            (folder / IDENTITIES).write_text(json.dumps(public, indent=2))
    if plan.topology == "two_servers":
        known = Identity.kept_in(second / IDENTITY).public
        for folder in sites.values():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / SECOND_IDENTITY).write_bytes(known)


def _vectors(plan: Plan, model: Model) -> SharedVectors:
    """∇ĥ by its factors where it has any and no noise goes on its entries."""
    by_factors = model.encoder.has_factors and plan.protection.is_inert
    return SharedVectors(model, by_factors, plan.estimator == "compensated")
