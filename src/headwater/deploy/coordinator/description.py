"""What `headwater status` and the pages show of a deployment and its sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.deploy.coordinator.site import Site
from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.coordinator.traffic import link


def describe(deployed: Deployment | None, sites: Mapping[str, Site]) -> dict[str, Any]:
    """Describe what is deployed, all sites, and what crosses between them."""
    names = dict.fromkeys([*(deployed.needed if deployed else ()), *sites])
    flow = None
    if deployed is not None:
        moving = deployed.moving is not None
        flow = {"name": deployed.name, "id": deployed.id, "phase": deployed.phase, "moving": moving}
    return {
        "flow": flow,
        "sites": [_site(name, sites.get(name), deployed) for name in names],
        "links": [] if deployed is None else _links(deployed, sites),
        "net": None if deployed is None or deployed.chart is None else deployed.chart.describe(),
    }


def _links(deployed: Deployment, sites: Mapping[str, Site]) -> list[dict[str, Any]]:
    """Describe what crosses between sites, each way by itself."""
    senders = {name: site.traffic for name, site in sites.items()}
    crossing: dict[tuple[str, str], list[str]] = {(one, other): [] for one, other in deployed.joined}
    for stream, origin, target in deployed.streams:
        crossing.setdefault((origin, target), []).append(stream)
    return [link(one, other, streams, senders.get(one), deployed.chart) for (one, other), streams in crossing.items()]


def _site(name: str, site: Site | None, deployed: Deployment | None) -> dict[str, Any]:
    steps = [] if deployed is None else [step for step, at in deployed.sites.items() if at == name]
    if site is None:
        return {"name": name, "here": False, "steps": steps, "state": "away", "why": "it has not joined"}
    return {"name": name, "steps": steps, **site.describe(deployed)}
