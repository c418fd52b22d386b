"""What the sites of a net have of this machine: each a network of its own and a share of the cores, as far as that goes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext

from headwater.cores import usable_cores
from headwater.deploy.bridge.links import Address
from headwater.deploy.local.carrier import Carrier, address_of
from headwater.deploy.local.cuts import CutLink
from headwater.deploy.local.namespace import Namespace
from headwater.deploy.local.quota import Quotas
from headwater.deploy.local.relay import LOOPBACK, Relay
from headwater.deploy.local.wires import Wires
from headwater.deploy.token import COORDINATOR
from headwater.errors import listed
from headwater.net.net import Net
from headwater.rate import cgroups

_LEAST_CORES = 0.2  #: with less a site takes minutes to start


class Emulation:
    """Where the sites of a net start; `notices` says in a line each what this machine does not allow, and what it does."""

    def __init__(
        self,
        net: Net,
        sites: Sequence[str],
        servers: Sequence[Address],
        *,
        namespaces: bool = True,
        core_ips: float | None = None,
    ) -> None:
        """`servers` are those of this machine that every site reaches, see `way_to`; the first is the coordinator.

        `core_ips` is what a core of this machine does.

        Without `namespaces` sites have the network of this machine, without `core_ips` all of its cores.
        """
        self._number = {site: number for number, site in enumerate(sites)}
        self._servers = list(servers)
        self.notices: list[str] = []
        self._namespaces: list[Namespace] = []
        self._carrier: Carrier | None = None
        self._relay: Relay | None = None
        self._quotas: Quotas | None = None
        self._cores: dict[str, float] = {}
        self.core_ips = core_ips
        try:
            if namespaces:
                self._part(Wires.of(net, sites), servers)
            if core_ips is not None:
                self._ration({site: cores_of(net, site, core_ips) for site in sites})
        except BaseException:
            self.close()
            raise

    def address(self, site: str) -> str:
        """Return where other sites reach a site."""
        return self._namespaces[self._number[site]].address if self._namespaces else LOOPBACK

    def way_to(self, server: Address) -> Address:
        """Return where sites reach a server of this machine."""
        return (LOOPBACK, server[1]) if self._namespaces else server

    def why_uncut(self) -> str:
        """Say why no link can be cut; nothing where they can."""
        return "" if self._namespaces else "sites have networks of their own as root, without --no-namespaces"

    def cut(self, links: Sequence[CutLink]) -> None:
        """Have some links carry nothing, and all others everything."""
        if self._carrier is None or self._relay is None:
            return
        between = [
            (self._number[each.one], self._number[each.other], each.how) for each in links if each.other != COORDINATOR
        ]
        self._carrier.cut({pair: how for a, b, how in between for pair in ((a, b), (b, a))})
        asking = [each for each in links if each.other == COORDINATOR]
        self._relay.cut({(self._number[each.one], self._servers[0]): each.how for each in asking})

    def share(self, site: str) -> float | None:
        """Return the cores that the processes of a site may take; None where those are all of the machine."""
        return self._cores.get(site) if self._quotas is not None else None

    def start(self, site: str, command: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        """Start a process at a site, in a session of its own; its input ends when this process does, however that comes.

        `variables` are those of the environment that it has of its own.
        """
        there = self._namespaces[self._number[site]].inside() if self._namespaces else nullcontext()
        with there:
            own = {**os.environ, **variables}
            process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=own)
        if self._quotas is not None and site in self._cores:
            self._quotas.bound(process.pid, self._number[site], self._cores[site])
        return process

    def close(self) -> None:
        """Leave nothing behind; all processes have ended by now."""
        if self._relay is not None:
            self._relay.close()
        if self._carrier is not None:
            self._carrier.close()
        for each in self._namespaces:
            each.close()
        self._namespaces = []
        if self._quotas is not None:
            self._quotas.close()

    def _part(self, wires: Wires, servers: Sequence[Address]) -> None:
        """Give each site a network of its own, where root may."""
        try:
            for number in range(len(self._number)):
                self._namespaces.append(Namespace(address_of(number), wires.mtu))
        except OSError as error:
            for each in self._namespaces:
                each.close()
            self._namespaces = []
            why = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            self.notices.append(f"links are as fast as this machine: it does not allow network namespaces ({why})")
            return
        self._carrier = Carrier(self._namespaces, wires)
        self._relay = Relay(self._namespaces, servers)
        self.notices.append(
            "links are as fast and as far as the net says, in network namespaces; sites reach each other and the "
            "coordinator alone, and with --reach PORT a server of this machine"
        )

    def _ration(self, cores: dict[str, float]) -> None:
        """Bound the cores of sites that are slower than this machine, where control groups can be made."""
        most = usable_cores()
        self._cores = {site: max(share, _LEAST_CORES) for site, share in cores.items() if share < most}
        groups = cgroups.find() if self._cores else None
        if groups is not None:
            self._quotas = Quotas(groups)
            shares = ", ".join(f"'{site}' {share:.2g}" for site, share in self._cores.items())
            self.notices.append(f"cores that sites may take: {shares}; all others have this machine's {most:g}")
            raised = [site for site, share in cores.items() if share < _LEAST_CORES]
            if raised:
                self.notices.append(f"sites {listed(raised)} should have fewer cores, and would not start in time")
        elif self._cores:
            self.notices.append("all sites have the cores of this machine: it does not allow control groups")


def cores_of(net: Net, site: str, core_ips: float) -> float:
    """Return how many cores of this machine, each of so many instructions a second, the devices of a site are."""
    return sum(net.classes[int(net.class_of[d])].cpu_ips for d in net.devices_of(net.zone(site))) / core_ips
