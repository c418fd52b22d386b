"""When packets between the sites of a net arrive: latency and bandwidth as the net has them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headwater.net.net import Net

_ROOM_S = 0.5  #: for which packets may wait for a link; what comes then is lost, and TCP slows down
_LEAST_MTU, _MOST_MTU = 1500, 9000
_PACKET_S = 1e-3  #: that one packet may keep the slowest link busy


class Wires:
    """The ways between sites, by number.

    Each site has one link to the others, which all that it sends and gets shares, as devices of a net do. A packet goes
    through both links at once, the slower of which bounds it, and then takes the latency of the way.
    """

    def __init__(self, latency_s: Sequence[Sequence[float]], link_bps: Sequence[float]) -> None:
        self._latency_s, self.link_bps = latency_s, list(link_bps)
        self._free_s = [0.0] * len(link_bps)  #: when each link has sent all that it was given

    @classmethod
    def of(cls, net: Net, sites: Sequence[str]) -> Wires:
        """Return those between some sites of a net; of a site's devices the nearest and the best connected count."""
        zones = [net.zone(site) for site in sites]
        devices = [net.devices_of(zone) for zone in zones]
        lan_s = [min((float(net.lan_s[d]) for d in own), default=0.0) for own in devices]
        fastest = [max((float(net.access_bps[net.class_of[d]]) for d in own), default=math.inf) for own in devices]
        latency_s = [[0.0] * len(zones) for _ in zones]
        for a, zone in enumerate(zones):
            for b, far_s in enumerate(np.asarray(net.wan.row(zone))[zones].tolist()):
                latency_s[a][b] = 0.0 if a == b else far_s + lan_s[a] + lan_s[b]
        return cls(latency_s, fastest)

    @property
    def mtu(self) -> int:
        """The longest packet in bytes: few are to be carried, and none is to keep a link busy for long."""
        slowest = min((bps for bps in self.link_bps if bps > 0), default=math.inf)
        return int(min(max(_LEAST_MTU, slowest * _PACKET_S / 8), _MOST_MTU))

    def arrival_s(self, origin: int, target: int, nbytes: int, now_s: float) -> float | None:
        """Return when a packet that is sent now arrives; None for one that is lost."""
        latency_s = self._latency_s[origin][target]
        if not latency_s < math.inf or not self.link_bps[origin] or not self.link_bps[target]:
            return None
        begins_s = max(now_s, self._free_s[origin])
        taken_s = max(begins_s, self._free_s[target])
        if taken_s - now_s > _ROOM_S:
            return None
        self._free_s[origin] = begins_s + 8 * nbytes / self.link_bps[origin]
        self._free_s[target] = taken_s + 8 * nbytes / self.link_bps[target]
        return max(self._free_s[origin], self._free_s[target]) + latency_s
