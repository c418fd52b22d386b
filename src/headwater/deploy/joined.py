"""The ends of a part's bridges in its own process: connected when first needed, to where the other sites are by now."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from headwater.deploy.bridge.inlet import Inlet
from headwater.deploy.bridge.links import Address, Dial, End, Links
from headwater.deploy.bridge.outlet import Outlet
from headwater.deploy.bridge.uplink import Meter, Uplink
from headwater.deploy.certificates import Identity, tls_name
from headwater.deploy.cut import Crossing
from headwater.deploy.part import Part
from headwater.deploy.ports import free_port
from headwater.errors import InputError, RunError

_ADDRESSES, _ENDED, _PORT = "addresses.json", "ended.json", "port"
_PORTS = 64  #: that are tried from the first on


class Joined:
    """Makes both kinds of ends for a part in `folder`, where the agent notes where the other sites are.

    `listen` is where other sites may reach this one; a port of 0 is any. The port that was taken is noted in the folder for
    the agent to tell, and taken again by a later process.
    """

    def __init__(
        self, part: Part, folder: Path, identity: Identity, listen: Address | None, uplink: Uplink | None = None
    ) -> None:
        self._part, self._folder, self._identity, self._listen = part, folder, identity, listen
        self._uplink = uplink or Uplink()
        self._links: Links | None = None

    def outlet(self, crossing: Crossing) -> Outlet:
        """Return the end that sends; once the stream has ended it stays until the other site has all of it."""
        given = self._dialed(crossing.origin, crossing.target)
        return Outlet(
            *(self._bridge(crossing), self, *given),
            peer=tls_name(crossing.target),
            room=self._uplink.room_of(crossing.stream),
            priority=self._uplink.priority(crossing.stream),
            linger_s=float("inf"),
            is_through=lambda: crossing.target in read_ended(self._folder),
        )

    def inlet(self, crossing: Crossing) -> Inlet:
        """Return the end that receives."""
        given = self._dialed(crossing.target, crossing.origin)
        return Inlet(self._bridge(crossing), crossing.schema, self, *given, peer=tls_name(crossing.origin))

    def _bridge(self, crossing: Crossing) -> str:
        return f"{self._part.id}: {crossing.stream}, {crossing.origin} → {crossing.target}"

    def _dialed(self, ours: str, other: str) -> tuple[Dial | None]:
        """Return whom to dial: the receiver is dialed where it listens, else the sender; see `dials`."""
        if not dials(ours, other, self._part.listens):
            return (None,)
        return (lambda: read_addresses(self._folder).get(other),)

    # -- the connections --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the port at which others reach this part, before anything crosses: who dials too early is kept waiting."""
        if self._links is None:
            self._links = self._made()

    def attach(self, end: End, dial: Dial | None = None, *, name: str | None = None) -> None:
        """Connect an end."""
        self.open()
        assert self._links is not None
        self._links.attach(end, dial, name=name)

    def detach(self, end: End) -> None:
        """Hang up."""
        if self._links is not None:
            self._links.detach(end)

    def _made(self) -> Links:
        server, client = self._identity.server(), self._identity.client()
        meter = None if self._uplink == Uplink() else Meter(self._uplink)
        if self._listen is None or self._part.site not in self._part.listens:
            return Links(server=server, client=client, meter=meter)
        host, first = self._listen
        known = read_port(self._folder)
        wanted = [known] if known else []
        wanted += range(first, min(first + _PORTS, 65536)) if first else [free_port(host), 0]
        refused: InputError | None = None
        for port in wanted:
            try:
                links = Links((host, port), server=server, client=client, meter=meter)
            except InputError as error:
                refused = error
                continue
            note_port(self._folder, links.port)
            return links
        raise RunError(f"{refused}; other sites could not reach this part")


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


def read_port(folder: Path) -> int | None:
    """Return the port at which a part's process listens, or did; None before it has."""
    try:
        return int((folder / _PORT).read_text())
    except (OSError, ValueError):
        return None


def note_port(folder: Path, port: int) -> None:
    """Note the port at which a part's process listens."""
    _write(folder / _PORT, str(port).encode())


def _write(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)
