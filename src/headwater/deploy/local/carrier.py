"""Carries the packets of namespaces from one to another, each as late as the wires say.

The kernel could do that by itself where it is built with `netem`, which many are not; and it has one delay for a device,
where a net has one for each pair of sites.
"""

from __future__ import annotations

import heapq
import os
import select
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from headwater.deploy.local.cuts import How
from headwater.deploy.local.namespace import Namespace
from headwater.deploy.local.packets import TARGET, resetting
from headwater.deploy.local.wires import Wires

_NETWORK = "10.84.71.0"  #: it need not be free: nothing leads from it into any other
_AT_ONCE = 256  #: packets of a site that are read before it is another's turn
_LOOK_S = 0.2
_NICE = -20


def address_of(number: int) -> str:
    """Return the address of a site, by its number.

    >>> address_of(0)
    '10.84.71.1'
    """
    return f"{_NETWORK.rpartition('.')[0]}.{number + 1}"


class Carrier:
    """A thread that carries packets, ahead of whatever else the machine runs where it may be."""

    def __init__(self, namespaces: Sequence[Namespace], wires: Wires) -> None:
        self._namespaces, self._wires = namespaces, wires
        self._number_of = {each.packets: number for number, each in enumerate(namespaces)}
        self._target_of = {socket.inet_aton(each.address): number for number, each in enumerate(namespaces)}
        self._due: list[tuple[float, int, int, bytes]] = []  #: (when, in which order, for whom, packet)
        self._count = 0
        self._cut: Mapping[tuple[int, int], How] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="carrier", daemon=True)
        self._thread.start()

    def cut(self, links: Mapping[tuple[int, int], How]) -> None:
        """Carry nothing from one site to another, for some pairs, each way by itself, and everything for all others."""
        self._cut = dict(links)

    def close(self) -> None:
        """Carry nothing any more."""
        self._over.set()
        self._thread.join()

    def _carry(self) -> None:
        with suppress(
            OSError
        ):  # of this thread alone: on a busy machine packets would be late by whole turns of others
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        devices = list(self._number_of)
        while not self._over.is_set():
            wait_s = min(_LOOK_S, max(0.0, self._due[0][0] - time.monotonic())) if self._due else _LOOK_S
            ready, _, _ = select.select(devices, [], [], wait_s)
            for device in ready:
                self._take(device)
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                _, _, target, packet = heapq.heappop(self._due)
                with suppress(OSError):  # a site that is just going has no use for it
                    os.write(self._namespaces[target].packets, packet)

    def _take(self, device: int) -> None:
        origin, now_s = self._number_of[device], time.monotonic()
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(device, self._namespaces[origin].mtu)
            except OSError:  # there is no more
                return
            target = self._target_of.get(packet[TARGET]) if packet[0] >> 4 == 4 else None
            if target is None:
                continue
            if (how := self._cut.get((origin, target))) is not None:
                if how == "reset" and (answer := resetting(packet)) is not None:
                    with suppress(OSError):
                        os.write(device, answer)
                continue
            at_s = self._wires.arrival_s(origin, target, len(packet), now_s)
            if at_s is not None:
                self._count += 1
                heapq.heappush(self._due, (at_s, self._count, target, packet))
