"""The devices of a linear program: some real ones, and relaxed ones that stand for all others.

Per listed zone and class one relaxed device is as near as the nearest unlisted one; *elsewhere* is as near
to every zone as any unlisted zone is. Neither has limits, so what the program proves holds for the whole
net.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.net.arrays import Floats, Ints
from headwater.net.nearest import nearest
from headwater.place.candidates import candidates
from headwater.place.problem import Problem


@dataclass(frozen=True, eq=False)
class Hosts:
    """Real and relaxed devices of the program; a relaxed one has device −1."""

    device: Ints
    kind: Ints
    zone_at: Ints
    """Index into the zones of the program."""
    lan_s: Floats
    wan_s: Floats
    """Latency between the zones of the program."""
    zone: Ints
    """The net's zone of each zone of the program; −1 is elsewhere."""

    def real(self) -> Hosts:
        """Without the relaxed devices."""
        mask = self.device >= 0
        return Hosts(self.device[mask], self.kind[mask], self.zone_at[mask], self.lan_s[mask], self.wan_s, self.zone)


def hosts(problem: Problem, placed: Ints | None) -> Hosts:
    """List the candidates of a problem and a known placement's devices, and relax the rest."""
    net, index = problem.net, nearest(problem.net)
    devices = candidates(problem, per_site=1)
    if placed is not None:
        devices = np.union1d(devices, placed)
    zones = np.unique(net.zone_of(devices))
    device, kind, place, lan = devices.tolist(), net.class_of[devices].tolist(), [], []
    at = {int(z): i for i, z in enumerate(zones)}
    place = [at[int(z)] for z in net.zone_of(devices)]
    lan = net.lan_s[devices].tolist()
    explicit = set(device)
    for zone in zones.tolist():
        for group in np.flatnonzero(index.zone == zone).tolist():
            rest = (int(d) for d in index.members(group) if int(d) not in explicit and int(d) not in problem.closed)
            nearest_rest = next(rest, None)
            if nearest_rest is not None:
                device.append(-1)
                kind.append(int(index.kind[group]))
                place.append(at[zone])
                lan.append(float(net.lan_s[nearest_rest]))
    wan = np.array([net.wan.row(int(a))[zones] for a in zones])
    others = np.setdiff1d(np.arange(len(net.zones)), zones)
    if len(others):
        wan, zones = _with_elsewhere(problem, wan, zones, others, at, device, kind, place, lan)
    return Hosts(np.array(device), np.array(kind), np.array(place), np.array(lan), wan, zones)


def _with_elsewhere(
    problem: Problem,
    wan: Floats,
    zones: Ints,
    others: Ints,
    at: dict[int, int],
    device: list[int],
    kind: list[int],
    place: list[int],
    lan: list[float],
) -> tuple[Floats, Ints]:
    net, index = problem.net, nearest(problem.net)
    reach = np.array([net.wan.row(int(a))[others].min() for a in zones])
    wan = np.block([[wan, reach[:, None]], [reach[None, :], np.zeros((1, 1))]])
    outside = np.isin(index.zone, others)
    for k in np.unique(index.kind[outside]).tolist():
        device.append(-1)
        kind.append(k)
        place.append(len(zones))
        lan.append(float(index.lan_s[outside & (index.kind == k)].min()))
    return wan, np.append(zones, -1)
