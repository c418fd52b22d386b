"""Whether records can get from one end of a flow to the other at all."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Flags
from headwater.net.net import Net
from headwater.place.problem import Problem


def no_route(problem: Problem) -> str | None:
    """Name two pinned steps of one flow between whose devices no way leads, not even through other zones; None if all join.

    Streams go from zone to zone directly, and a step between may stand anywhere; so zones that a chain of links joins are
    joined for a flow.
    """
    if problem.hop_s is not None:
        return None
    net, reachable = problem.net, dict[int, Flags]()
    parts = _parts(problem)
    first: dict[int, int] = {}
    for step in np.flatnonzero(problem.pinned >= 0).tolist():
        other = first.setdefault(parts[step], step)
        here, there = int(problem.pinned[other]), int(problem.pinned[step])
        zone, target = int(net.zone_of(here)), int(net.zone_of(there))
        if here == there:
            continue
        if zone not in reachable:
            reachable[zone] = _within_reach(net, zone)
        if not reachable[zone][target] or not np.isfinite(net.lan_s[here] + net.lan_s[there]):
            return (
                f"there is no route between '{net.device_name(here)}', where step '{problem.steps[other]}' is pinned, and "
                f"'{net.device_name(there)}', where step '{problem.steps[step]}' is: no chain of links of net '{net.name}' "
                f"joins zone '{net.zones[zone]}' to zone '{net.zones[target]}'"
            )
    return None


def _parts(problem: Problem) -> list[int]:
    """For each step the least number of a step that it hangs together with."""
    part = list(range(len(problem.steps)))
    for _ in part:
        before = list(part)
        for a, b in zip(problem.stream_from.tolist(), problem.stream_to.tolist(), strict=True):
            part[a] = part[b] = min(part[a], part[b])
        if part == before:
            break
    return part


def _within_reach(net: Net, zone: int) -> Flags:
    """The zones that a chain of links joins to a zone."""
    reachable = np.zeros(len(net.zones), bool)
    reachable[zone] = True
    ahead = [zone]
    while ahead and not reachable.all():
        new = np.isfinite(net.wan.row(ahead.pop())) & ~reachable
        reachable |= new
        ahead += np.flatnonzero(new).tolist()
    return reachable
