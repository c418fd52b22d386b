"""What a coordinator keeps: which flow is deployed, where each step of it runs, and how far that has come."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from headwater.deploy.certificates import Identity, issued
from headwater.deploy.chart import Chart
from headwater.deploy.part import Part, Promise, checksum
from headwater.deploy.policies.policy_state import PolicyState
from headwater.deploy.routes import Routes, Stream, routes_of
from headwater.deploy.token import COORDINATOR
from headwater.errors import RunError
from headwater.io.lock import Lock
from headwater.rate.micro_batches import why_not

_STATE, _ADDRESS, _CERTIFICATES = "deployment.json", "address", "certificates"

#: handed to all sites first, and started once each has it; ended is the flow's own end, stopped is somebody's wish
Phase = Literal["installing", "running", "stopping", "stopped", "ended"]


class Move(msgspec.Struct, kw_only=True):
    """A flow that is being cut anew: what is done about it can be done again; once `cut`, nothing that changes starts."""

    id: str  #: of the new parts
    sites: dict[str, str]  #: step → site, then
    joined: list[tuple[str, str]]
    listens: list[str]
    streams: list[Stream] = []  #: what crosses, then
    go_on: list[str] = []  #: sites whose parts run on as they are, but for where their streams go to and come from
    promises: dict[str, Promise] = {}  #: by site
    cut: bool = False  #: the old parts are told to stop: until then they run, and the new ones are prepared
    known: dict[
        str, list[str]
    ] = {}  #: by site, keys of its state that was safe where it will be needed, when it was cut


class Deployment(msgspec.Struct, kw_only=True):
    """A flow that runs at sites, or should."""

    id: str  #: of this cut of the deployment, in which no other is called so
    name: str  #: of the flow
    flow: str  #: as a part names it
    known: list[str]  #: all sites of the net: no other is admitted
    sites: dict[str, str]  #: step → site
    planned: dict[str, str] = {}  #: step → site as it was deployed, once a step was moved
    files: dict[str, bytes] = {}  #: the flow's source files
    inputs: list[str] = []
    output: str | None = None
    rate: float | None = None
    every: str = "250 ms"
    phase: Phase = "installing"
    joined: list[tuple[str, str]] = []  #: pairs of sites between which a stream crosses
    streams: list[Stream] = []  #: what crosses between sites
    ids: dict[str, str] = {}  #: by site, of parts that are of a cut before this one, and went on
    listens: list[str] | None = None  #: sites that others can dial; None before all have joined
    ran: bool = False  #: whether it was started at any time: what sites keep of it is worth something
    ended: list[str] = []  #: sites whose part has come to its end
    moving: Move | None = None
    promises: dict[str, Promise] = {}  #: by site, of a flow with a contract
    engine_only: dict[str, str] = {}  #: steps that cannot be at a site which runs its part on Spark, and why
    policed: PolicyState | None = None  #: the policy that decides where steps are; None where people alone do
    chart: Chart | None = None  #: of the net, for who draws it

    @property
    def needed(self) -> list[str]:
        """The sites that run a part."""
        return list(dict.fromkeys(self.sites.values()))

    def id_at(self, site: str) -> str:
        """Return what the part at a site is called."""
        return self.ids.get(site, self.id)

    def routes(self, site: str) -> Routes | None:
        """Return where the streams of a site's part should go to and come from; None where nothing is known of that.

        While a move is about to be, one that goes on keeps its streams for the sites that will read them as well: they will
        want them from where on those before them have not read them.
        """
        if not self.streams:
            return None
        now = routes_of(site, self.id, self.streams, self.listens or [])
        move = self.moving
        if move is None or site not in move.go_on:
            return now
        then = routes_of(site, move.id, move.streams, move.listens)
        soon = {name: sorted(set(targets) - set(now.targets.get(name, ()))) for name, targets in then.targets.items()}
        listens = sorted({*now.listens, *then.listens})
        return Routes(f"{now.name}, soon {then.name}", now.targets, now.origins, listens, soon, moving=True)

    def steps_at(self) -> dict[str, list[str]]:
        """Return the steps that each site runs."""
        return {name: [step for step, at in self.sites.items() if at == name] for name in self.needed}

    def why_not_on_spark(self, site: str) -> str:
        """Say why a site cannot run its part on Spark; nothing where it can."""
        if site in self.promises and (why := why_not(self.promises[site].contract)):
            return f"a promise of {self.promises[site].contract} is asked of it, and {why}"
        here = (step for step, at in self.sites.items() if at == site)
        return next((self.engine_only[step] for step in here if step in self.engine_only), "")

    def same_as(self, other: Deployment) -> bool:
        """Say whether another would be the same flow, cut and run in the same way as this one was deployed, or is now."""
        names = ["name", "flow", "files", "inputs", "output", "rate", "every"]
        by = [None if each.policed is None else (each.policed.name, each.policed.contract) for each in (self, other)]
        if by == [None, None] and other.sites not in (self.sites, self.planned):
            return False  # with a policy they are its choice
        return by[0] == by[1] and all(getattr(self, each) == getattr(other, each) for each in names)

    @property
    def then(self) -> Deployment:
        """What it is when the move is done."""
        assert self.moving is not None
        move = self.moving
        cut: dict[str, Any] = {"id": move.id, "sites": move.sites, "joined": move.joined, "listens": move.listens}
        cut |= {"promises": move.promises, "streams": move.streams, "planned": self.planned or self.sites}
        cut |= {"ids": {site: self.id_at(site) for site in move.go_on}}
        cut |= {"ended": [site for site in self.ended if site in move.go_on]}
        return msgspec.structs.replace(self, **cut, moving=None)

    def part(self, site: str) -> Part:
        """Return what a site runs."""
        return Part(
            id=self.id_at(site),
            site=site,
            flow=self.flow,
            sites=self.sites,
            listens=self.listens or [],
            files={path: checksum(content) for path, content in self.files.items()},
            inputs=self.inputs,
            output=self.output,
            rate=self.rate,
            every=self.every,
            promise=self.promises.get(site),
        )


class CoordinatorState(msgspec.Struct, kw_only=True):
    """All that a coordinator keeps."""

    deployed: Deployment | None = None
    forgotten: list[str] = []  #: deployments that are over: a site that still has a part of one is to remove it


class StateFolder:
    """The folder of a coordinator."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def certificates(self) -> Path:
        """Where the authority is, and the certificates that it has given."""
        return self.path / _CERTIFICATES

    def identity(self) -> Identity:
        """Return what the coordinator shows to others; it is made the first time."""
        return issued(self.certificates, COORDINATOR)

    @property
    def exists(self) -> bool:
        """Whether this is the folder of a coordinator."""
        return (self.path / _STATE).exists() or (self.path / _ADDRESS).exists()

    def lock(self) -> Lock:
        """Have the folder for this process; RunError names the one that has it."""
        return Lock(self.path, "the state of a coordinator,")

    def read(self) -> CoordinatorState:
        """Return what is kept; nothing, in a new folder."""
        try:
            return msgspec.json.decode((self.path / _STATE).read_bytes(), type=CoordinatorState)
        except FileNotFoundError:
            return CoordinatorState()
        except (OSError, msgspec.DecodeError) as error:
            raise RunError(f"the coordinator's state {self.path / _STATE} cannot be read: {error}") from None

    def write(self, state: CoordinatorState) -> None:
        """Keep something; it is there after any crash once this returns."""
        _replace(self.path / _STATE, msgspec.json.encode(state))

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the coordinator listens, or is to listen; None before it was ever said."""
        try:
            host, _, port = (self.path / _ADDRESS).read_text().strip().rpartition(":")
            return host, int(port)
        except (OSError, ValueError):
            return None

    def settled_address(self, host: str, port: int) -> tuple[str, int]:
        """Return where the coordinator is to listen: here, unless it was said before; all hear the same."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / f".{_ADDRESS}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            address = self.address
            if address is None:
                self.note_address(host, port)
            return address or (host, port)

    def note_address(self, host: str, port: int) -> None:
        """Note where the coordinator listens, for commands on this machine and for its next start."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(self.path / _ADDRESS, f"{host}:{port}\n".encode())


def _replace(path: Path, content: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None
