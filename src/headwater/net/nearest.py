"""Which devices stand nearest to their gateway, by zone and class.

Devices of one zone and class differ only in their LAN latency, so the nearest free one is the best of its
group wherever its neighbours are. The heads of all groups are found in one pass; a group is sorted when it
is asked for more than its head.
"""

from __future__ import annotations

import weakref

import numpy as np

from headwater.net.arrays import Floats, Ints
from headwater.net.net import Net


class Nearest:
    """The devices of a net in groups of one zone and one class, nearest first."""

    def __init__(self, net: Net) -> None:
        # not the net itself: the index is kept by net, and would keep it alive
        self._first, self._class_of, self._all_lan_s = net.first, net.class_of, net.lan_s
        zones, kinds, heads = [], [], []
        bounds = net.first.tolist()
        for zone in range(len(net.zones)):  # zone by zone, so that what is looked at stays in the cache
            kinds_here, lan = net.class_of[bounds[zone] : bounds[zone + 1]], net.lan_s[bounds[zone] : bounds[zone + 1]]
            for kind in np.flatnonzero(np.bincount(kinds_here, minlength=1)).tolist():
                heads.append(bounds[zone] + int(np.argmin(np.where(kinds_here == kind, lan, np.inf))))
                zones.append(zone)
                kinds.append(kind)
        self.zone: Ints = np.array(zones)
        self.kind: Ints = np.array(kinds)
        self.head: Ints = np.array(heads)
        self.lan_s: Floats = net.lan_s[self.head]
        self._group = {pair: g for g, pair in enumerate(zip(zones, kinds, strict=True))}
        self._sorted: dict[int, Ints] = {}
        self._of_kind: dict[int, Ints] = {}

    def group_of(self, device: int) -> int:
        """The group that a device belongs to."""
        zone = int(np.searchsorted(self._first, device, side="right")) - 1
        return self._group[zone, int(self._class_of[device])]

    def members(self, group: int) -> Ints:
        """The devices of a group, nearest first; equals in order of their number."""
        if group not in self._sorted:
            zone = int(self.zone[group])
            start, stop = int(self._first[zone]), int(self._first[zone + 1])
            devices = start + np.flatnonzero(self._class_of[start:stop] == self.kind[group])
            self._sorted[group] = devices[np.argsort(self._all_lan_s[devices], kind="stable")]
        return self._sorted[group]

    def of_kind(self, kind: int) -> Ints:
        """All devices of a class in order of their number."""
        if kind not in self._of_kind:
            self._of_kind[kind] = np.flatnonzero(self._class_of == kind)
        return self._of_kind[kind]


_KEPT: weakref.WeakKeyDictionary[Net, Nearest] = weakref.WeakKeyDictionary()


def nearest(net: Net) -> Nearest:
    """The index of a net, built at the first call and kept as long as the net lives."""
    if net not in _KEPT:
        _KEPT[net] = Nearest(net)
    return _KEPT[net]
