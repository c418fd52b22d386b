"""The ends of a part's bridges in its own process: connected when first needed, to where the other sites are by now."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from headwater.deploy.bridge.inlet import Inlet
from headwater.deploy.bridge.links import Address, Dial, End, Links
from headwater.deploy.bridge.outlet import Outlet, Way
from headwater.deploy.bridge.uplink import Meter, Uplink
from headwater.deploy.certificates import Identity, tls_name
from headwater.deploy.cut import Crossing
from headwater.deploy.part import Part
from headwater.deploy.ports import free_port
from headwater.deploy.revoked import changed_ns
from headwater.deploy.routes import Outgoing, Routes
from headwater.errors import InputError, RunError, listed, suggestion
from headwater.flow.flow import DEAD_LETTERS

log = logging.getLogger(__name__)

_ADDRESSES, _ENDED, _PORT, _ROUTES, _ROUTED = "addresses.json", "ended.json", "port", "routes.json", "routed"
_OUTGOING, _REVOKED = "outgoing.json", "revoked.json"
_PORTS = 64  #: that are tried from the first on
_LOOK_S = 0.02  #: between two looks whether the agent has noted something else
_SOON_S = 0.002  #: and while a move is about to be, for which records wait
_TELL_S = 0.5  #: between two notes of what waits


class BridgeEnds:
    """Makes both kinds of ends for a part in `folder`, where the agent notes where the other sites are.

    `listen` is where other sites may reach this one; a port of 0 is any. The port that was taken is noted in the folder for
    the agent to tell, and taken again by a later process. Where streams go to and come from may change while the part runs:
    what the agent notes is done soon, and noted as done.
    """

    def __init__(
        self, part: Part, folder: Path, identity: Identity, listen: Address | None, uplink: Uplink | None = None
    ) -> None:
        self._part, self._folder, self._identity, self._listen = part, folder, identity, listen
        self._uplink = uplink or Uplink()
        self._links: Links | None = None
        self._ends: list[Outlet | Inlet] = []
        self._outlets: dict[str, Outlet] = {}  #: those of them that send, by stream
        self._noted = read_outgoing(folder)  #: what the last process of this part has dropped
        self._attached = 0
        self._is_looking = False
        self._lock = threading.Lock()

    def outlet(self, crossings: Sequence[Crossing]) -> Outlet:
        """Return the end that sends; once the stream has ended it stays until the other sites have all of it."""
        first, planned = crossings[0], [crossing.target for crossing in crossings]

        def ways() -> dict[str, Way]:
            routes = read_routes(self._folder)
            if routes is None:
                return {tls_name(target): self._way(first, target, None) for target in planned}
            targets, soon = (each.get(first.stream, []) for each in (routes.targets, routes.soon))
            current = {tls_name(target): self._way(first, target, routes) for target in targets}
            return current | {tls_name(target): self._way(first, target, routes, soon=True) for target in soon}

        outlet = Outlet(
            f"{self._deployment}: {first.stream}",
            self,
            room=self._uplink.room_of(first.stream),
            priority=self._uplink.priority(first.stream),
            linger_s=float("inf"),
            ways=ways,
        )
        self._ends.append(outlet)
        self._outlets[first.stream] = outlet
        return outlet

    def inlet(self, crossing: Crossing) -> Inlet:
        """Return the end that receives."""

        def way() -> tuple[Dial | None, str | None]:
            routes = read_routes(self._folder)
            moves = routes is not None and crossing.step != DEAD_LETTERS  # which come from several sites
            origin = routes.origins.get(crossing.stream) if routes is not None and moves else crossing.origin
            if origin is None:
                return None, None
            return self._dial(origin, routes), tls_name(origin)

        inlet = Inlet(self._bridge(crossing, crossing.target), crossing.schema, self, way=way)
        self._ends.append(inlet)
        return inlet

    @property
    def _deployment(self) -> str:
        """What all parts of the flow have in common, however often it is cut anew."""
        return self._part.id.rpartition("-")[0]

    def _bridge(self, crossing: Crossing, target: str) -> str:
        origin = f", {crossing.origin}" if crossing.step == DEAD_LETTERS else ""
        return f"{self._deployment}: {crossing.stream}{origin} → {target}"

    def _way(self, crossing: Crossing, target: str, routes: Routes | None, *, soon: bool = False) -> Way:
        bridge, dial = self._bridge(crossing, target), self._dial(target, routes)
        return Way(bridge, dial, lambda: target in read_ended(self._folder), soon)

    def _dial(self, other: str, routes: Routes | None) -> Dial | None:
        """Return whom to dial: the receiver is dialed where it listens, else the sender; see `dials`."""
        if not dials(self._part.site, other, self._part.listens if routes is None else routes.listens):
            return None
        return lambda: read_addresses(self._folder).get(other)

    # -- the connections --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the port at which others reach this part, before anything crosses: who dials too early is kept waiting."""
        if self._links is None:
            self._warn_of_slips()
            self._links = self._new_links()

    def _warn_of_slips(self) -> None:
        """Tell which streams the uplink names that the part does not have: a slip, or they are elsewhere by now."""
        for name in self._uplink.first:
            if name not in self._outlets:
                slip = suggestion(name, self._outlets) or f"; those that do are {listed(self._outlets)}"
                log.warning(
                    "--uplink has '%s' go first, and no such stream leaves site '%s'%s", name, self._part.site, slip
                )

    def attach(self, end: End, dial: Dial | None = None, *, name: str | None = None) -> None:
        """Connect an end."""
        self.open()
        assert self._links is not None
        self._links.refuse(read_revoked(self._folder))  # it may have been made ready before that was noted
        self._links.attach(end, dial, name=name)
        with self._lock:
            self._attached += 1
            if not self._is_looking:
                self._is_looking = True
                threading.Thread(target=self._look, name="routes", daemon=True).start()

    def detach(self, end: End) -> None:
        """Hang up."""
        if self._links is not None:
            self._links.detach(end)
            with self._lock:
                self._attached -= 1
            self._note_outgoing()  # here, and not by a thread that may not live to see it: the process may be about to end

    def _look(self) -> None:
        """Do what the agent notes, until nothing is connected any more; the first time whatever is there."""
        before: tuple[int, ...] = ()
        heeded = 0  #: the note of what is revoked
        rest_s, told_s = _LOOK_S, time.monotonic()
        while self._looks_on():
            if time.monotonic() - told_s > _TELL_S:
                told_s = time.monotonic()
                self._note_outgoing()
            if (noted := changed_ns(self._folder / _REVOKED)) != heeded and self._links is not None:
                with suppress(RunError):  # what was refused before is, and it is tried again
                    self._links.refuse(read_revoked(self._folder))
                    heeded = noted
            stamps = tuple(changed_ns(self._folder / name) for name in (_ROUTES, _ADDRESSES))
            if stamps != before and self._links is not None:
                before, routes = stamps, read_routes(self._folder)
                rest_s = _SOON_S if routes is not None and routes.moving else _LOOK_S
                try:
                    self._go_by(routes)
                except (
                    Exception
                ):  # a bug of ours: those who wait for it to be done give up, and the part goes on as it is
                    log.exception("streams of the part stay as they were")
            time.sleep(rest_s)

    def _note_outgoing(self) -> None:
        """Note what waits of the streams that leave, and what was dropped; a full disk may keep it from being noted."""
        outgoing: dict[str, Outgoing] = {}
        for stream, outlet in self._outlets.items():
            account = outlet.account()
            before = self._noted.get(stream, Outgoing()).dropped
            outgoing[stream] = Outgoing(account["messages_waiting"], account["bytes_kept"], before + account["dropped"])
        with suppress(OSError):
            _write(self._folder / _OUTGOING, msgspec.json.encode(outgoing))

    def _go_by(self, routes: Routes | None) -> None:
        assert self._links is not None
        for end in self._ends:
            end.look_anew()
        self._links.hurry()
        if routes is not None:
            note_routed(self._folder, routes.name)

    def _looks_on(self) -> bool:
        with self._lock:
            self._is_looking = self._attached > 0
            return self._is_looking

    def _new_links(self) -> Links:
        server, client = self._identity.server(), self._identity.client()
        meter = None if self._uplink == Uplink() else Meter(self._uplink)
        if self._listen is None or self._part.site not in self._part.listens:
            return Links(server=server, client=client, meter=meter)
        host, first = self._listen
        last_port = read_port(self._folder)
        ports = [last_port] if last_port else []
        ports += range(first, min(first + _PORTS, 65536)) if first else [free_port(host), 0]
        failure: InputError | None = None
        for port in ports:
            try:
                links = Links((host, port), server=server, client=client, meter=meter)
            except InputError as error:
                failure = error
                continue
            note_port(self._folder, links.port)
            return links
        raise RunError(f"{failure}; other sites could not reach this part")


def dials(ours: str, other: str, listens: list[str]) -> bool:
    """Say whether of two sites it is ours that dials the other: where both listen, the first by name is dialed."""
    if ours in listens and other in listens:
        return other < ours
    return other in listens


def read_addresses(folder: Path) -> dict[str, Address]:
    """Return where other sites are, as the agent last noted it."""
    try:
        return msgspec.json.decode((folder / _ADDRESSES).read_bytes(), type=dict[str, tuple[str, int]])
    except (OSError, msgspec.DecodeError):
        return {}


def note_addresses(folder: Path, addresses: dict[str, Address]) -> None:
    """Note where other sites are; a part's process sees it at its next attempt to connect."""
    _write(folder / _ADDRESSES, msgspec.json.encode(addresses))


def read_ended(folder: Path) -> list[str]:
    """Return the sites whose parts have come to their end, as the agent last noted it."""
    try:
        return msgspec.json.decode((folder / _ENDED).read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return []


def note_ended(folder: Path, sites: list[str]) -> None:
    """Note whose parts have come to their end: a word of theirs that they have all may never come any more."""
    _write(folder / _ENDED, msgspec.json.encode(sites))


def read_revoked(folder: Path) -> dict[str, str]:
    """Return whose certificates are refused, as the agent last noted it, by the names that TLS compares.

    RunError where that cannot be read: to admit all of them would be worse than to wait.
    """
    try:
        serials = msgspec.json.decode((folder / _REVOKED).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise RunError(f"which sites are revoked, in {folder / _REVOKED}, cannot be read: {error}") from None
    return {tls_name(site): serial for site, serial in serials.items()}


def note_revoked(folder: Path, revoked: dict[str, str]) -> None:
    """Note whose certificates are refused; a part's process hangs up on them soon."""
    _write(folder / _REVOKED, msgspec.json.encode(revoked))


def read_port(folder: Path) -> int | None:
    """Return the port at which a part's process listens, or did; None before it has."""
    try:
        return int((folder / _PORT).read_text())
    except (OSError, ValueError):
        return None


def note_port(folder: Path, port: int) -> None:
    """Note the port at which a part's process listens."""
    _write(folder / _PORT, str(port).encode())


def read_outgoing(folder: Path) -> dict[str, Outgoing]:
    """Return what waits of the streams that leave a part, as its process last noted it."""
    try:
        return msgspec.json.decode((folder / _OUTGOING).read_bytes(), type=dict[str, Outgoing])
    except (OSError, msgspec.DecodeError):
        return {}


def _write(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)


def read_routes(folder: Path) -> Routes | None:
    """Return where streams go to and come from, as the agent last noted it; None where it is as the part says."""
    try:
        return msgspec.json.decode((folder / _ROUTES).read_bytes(), type=Routes)
    except (OSError, msgspec.DecodeError):
        return None


def note_routes(folder: Path, routes: Routes) -> None:
    """Note where streams go to and come from; a part's process does it soon, see `read_routed`."""
    _write(folder / _ROUTES, msgspec.json.encode(routes))


def read_routed(folder: Path) -> str:
    """Return the name of the routes that a part's process goes by."""
    try:
        return (folder / _ROUTED).read_text()
    except OSError:
        return ""


def note_routed(folder: Path, name: str) -> None:
    """Note that the process goes by routes of that name."""
    _write(folder / _ROUTED, name.encode())
