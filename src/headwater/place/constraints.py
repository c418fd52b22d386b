"""What a user asks of a placement beyond the objective: pins, company, trust and targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from headwater.errors import NetError, PlacementError
from headwater.net.arrays import Flags
from headwater.net.net import Net
from headwater.place.objective import Objective
from headwater.place.problem import Problem


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints by name.

    `pins` say where steps must run: a device or, for any of its devices, a site.
    `keep` confines what a step puts out to a trust zone: every step that reads it must run there, until one
    of `anonymise` lies between. `at_most` limits measures, such as `{"critical": 0.2}`.
    """

    pins: Mapping[str, str] = field(default_factory=dict)
    together: tuple[tuple[str, ...], ...] = ()
    keep: Mapping[str, str] = field(default_factory=dict)
    anonymise: frozenset[str] = frozenset()
    at_most: Mapping[str, float] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    """Devices that must not be used."""


def constrain(problem: Problem, constraints: Constraints) -> Problem:
    """The problem with a user's constraints added; contradicting ones are an error."""
    net = problem.net
    pinned = problem.pinned.copy()
    sites: dict[int, int] = {}
    for name, at in constraints.pins.items():
        step, (device, site) = problem.step(name), _place(net, at)
        pinned[step] = device
        if site >= 0:
            sites[step] = site
    closed = problem.closed | {net.device(name) for name in constraints.closed}
    for i in np.flatnonzero(pinned >= 0).tolist():
        if int(pinned[i]) in closed:
            where = net.device_name(int(pinned[i]))
            raise PlacementError(f"step '{problem.steps[i]}' is pinned to '{where}', which is closed")
    targets = []
    for measure, limit in constraints.at_most.items():
        Objective.parse(measure)
        if not limit >= 0:
            raise PlacementError(f"the target for '{measure}' must be 0 or more; got {limit}")
        targets.append((((measure, 1.0),), float(limit)))
    groups = tuple(tuple(problem.step(name) for name in group) for group in constraints.together)
    result = dataclasses.replace(
        problem,
        pinned=pinned,
        closed=closed,
        together=(*problem.together, *groups),
        at_most=(*problem.at_most, *targets),
    )
    allowed = trusted_zones(result, constraints.keep, constraints.anonymise)
    if allowed is None and not sites:
        return result
    if allowed is None:
        allowed = np.ones((len(problem.steps), len(net.zones)), bool)
    for step, site in sites.items():
        if not allowed[step, site]:
            raise PlacementError(
                f"step '{problem.steps[step]}' is pinned to site '{net.zones[site]}' in trust zone '{net.trust[site]}', but "
                "its input must not go there; anonymise it first or pin it elsewhere"
            )
        allowed[step] = np.arange(len(net.zones)) == site
    _check_pins(result, allowed)
    return dataclasses.replace(result, zone_allowed=allowed)


def _place(net: Net, at: str) -> tuple[int, int]:
    """Return the device that a pin names, by its own name or as the only one of a site; else −1 and that site."""
    try:
        return net.device(at), -1
    except NetError:
        if at not in net.zones:
            raise
    site = net.zone(at)
    devices = net.devices_of(site)
    return (devices[0], -1) if len(devices) == 1 else (-1, site)


def trusted_zones(problem: Problem, keep: Mapping[str, str], anonymise: Iterable[str]) -> Flags | None:
    """For each step and zone, whether the step's input may go there; None when nothing is confined."""
    if not keep:
        return None
    net = problem.net
    for zone in keep.values():
        if zone not in net.trust:
            names = ", ".join(f"'{t}'" for t in sorted(set(net.trust)))
            raise PlacementError(f"net '{net.name}' has no trust zone '{zone}'; it has {names}")
    freed = {problem.step(name) for name in anonymise}
    confined_to = {problem.step(name): zone for name, zone in keep.items()}
    inside: list[set[str]] = [set() for _ in problem.steps]
    """The trust zones that a step's input is confined to."""
    allowed = np.ones((len(problem.steps), len(net.zones)), bool)
    for step in problem.order:
        for e in problem.inputs[step]:
            before = int(problem.stream_from[e])
            if before not in freed:
                inside[step] |= inside[before] | ({confined_to[before]} if before in confined_to else set())
        if step in confined_to:
            inside[step].add(confined_to[step])
        if len(inside[step]) > 1:
            zones = " and ".join(f"'{z}'" for z in sorted(inside[step]))
            raise PlacementError(
                f"step '{problem.steps[step]}' reads streams that must stay in {zones}; "
                "put an anonymising step before it"
            )
        for zone in inside[step]:
            allowed[step] &= np.array([trust == zone for trust in net.trust])
    return allowed


def _check_pins(problem: Problem, allowed: Flags) -> None:
    for i, name in enumerate(problem.steps):
        if problem.pinned[i] >= 0:
            zone = int(problem.net.zone_of(int(problem.pinned[i])))
            if not allowed[i, zone]:
                where = problem.net.device_name(int(problem.pinned[i]))
                raise PlacementError(
                    f"step '{name}' is pinned to '{where}' in trust zone '{problem.net.trust[zone]}', "
                    "but its input must not go there; anonymise it first or pin it elsewhere"
                )
