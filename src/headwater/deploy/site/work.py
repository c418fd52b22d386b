"""Does what a site's agent decides: parts are flows of a service, which starts them, watches them, and starts them again."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time

import msgspec

from headwater import __version__
from headwater.deploy.control.messages import PROTOCOL, Fetched, Hello, Message, PartState, Report, Unfit
from headwater.deploy.joined import note_addresses, read_port
from headwater.deploy.luggage import bring_notes, packed, unpacked
from headwater.deploy.part import Part, unpack
from headwater.deploy.site.agent import Agent, Deed, Locate, Remove, Start, Stop, Take, Unpack
from headwater.deploy.site.folder import SiteFolder
from headwater.deploy.site.resources import Site
from headwater.errors import HeadwaterError, RateError, RunError
from headwater.io.lock import Lock
from headwater.serve.service import Service

log = logging.getLogger("headwater.site")

_LEAVE_S = 20.0  #: for a process to leave whose agent is gone


class _Sampled(msgspec.Struct):
    records_in: int
    records_out: dict[str, int]


class _Sample(msgspec.Struct):
    total: _Sampled


class Work:
    """A site at work, whatever thread tells it something."""

    def __init__(self, folder: SiteFolder, service: Service, site: Site | None = None) -> None:
        self.folder, self._service, self._site = folder, service, site or Site()
        self._agent = Agent({id: not folder.home(id).is_stopped for id in folder.ids()})
        self._lock = threading.Lock()

    @property
    def has_parts(self) -> bool:
        """Whether there is something that goes on without the coordinator."""
        return bool(self._agent.parts)

    def hello(self) -> Hello:
        """Return the site's first word."""
        listen = self.folder.listen
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        cores = float(len(os.sched_getaffinity(0)))
        return Hello(self.folder.name, __version__, PROTOCOL, None if listen is None else listen[0], cores, memory)

    def report(self, heard: int) -> Report:
        """Return how the site fares; `heard` is the last word of the coordinator that is done."""
        served = {status["name"]: status for status in self._service.statuses()}
        if self._lock.acquire(blocking=False):  # not while a part is being taken, which is there in parts
            try:
                self.folder.sweep(set(served))
            finally:
                self._lock.release()
        parts = [self._state(id, served.get(id)) for id in list(self._agent.parts)]
        load, free = os.getloadavg()[0], shutil.disk_usage(self.folder.path).free
        return Report(parts, load, time.time(), free, heard, self._site.resources())

    def told(self, message: Message) -> list[Message]:
        """Do what a message asks for; return what the coordinator should know of it."""
        with self._lock:
            return [said for deed in self._agent.told(message) for said in self._do(deed)]

    def _state(self, id: str, status: dict[str, object] | None) -> PartState:
        port = read_port(self.folder.sources(id))
        if status is None:  # the service has not looked at it yet
            return PartState(id, "starting" if self._agent.parts.get(id) else "stopped", port=port)
        counted = _Sampled(0, {})
        sample = self._service.sample_of(id)
        if sample is not None:
            counted = msgspec.json.decode(sample, type=_Sample).total
        told = {"id": id, "phase": status["state"], "why": status["why"], "pid": status["pid"], "port": port}
        told |= {
            "restarts": status["restarts"],
            "records_in": counted.records_in,
            "records_out": sum(counted.records_out.values()),
        }
        return msgspec.convert(told, PartState)

    def _do(self, deed: Deed) -> list[Message]:
        match deed:
            case Unpack():
                return self._unpack(deed)
            case Take(id):
                return self._take(id)
            case Locate(id, addresses):
                note_addresses(self.folder.sources(id), dict(addresses))
            case Start(id):
                self._service.look()
                self._service.act(id, "start")
            case Stop(id):
                self._service.look()
                self._service.act(id, "stop")
            case Remove(id):
                self.folder.drop(id)
                self._service.look()
        return []

    def _unpack(self, deed: Unpack) -> list[Message]:
        try:
            identity = self.folder.identity()
            part = unpack(deed.sealed, self.folder.sources(deed.id), self.folder.name, identity.authority)
            if part.id != deed.id:
                raise RunError(f"the part that was sent as '{deed.id}' calls itself '{part.id}'")
            if deed.checkpoint or deed.after:
                self._take_over(deed)
            self._check_promise(part, deed.after)
            self.folder.add(deed.id, part.every, part.promise)
        except (HeadwaterError, OSError, ValueError) as error:
            log.error("a part is not taken: %s", error)
            return [Unfit(deed.id, str(error))]
        self._agent.has(deed.id)
        self._service.look()
        return []

    def _check_promise(self, part: Part, after: str) -> None:
        """Refuse a part whose promise this site cannot keep, before it is asked to: the ledger of the machine decides."""
        if part.promise is None:
            return
        before = next((status for status in self._service.statuses() if status["name"] == after), None)
        refusal = self._site.refusal(part.promise, None if before is None else before["pid"])
        if refusal is not None:
            raise RateError(f"site '{part.site}' cannot promise {part.promise.contract} to '{part.flow}': {refusal}")

    def _take_over(self, deed: Unpack) -> None:
        """Have a part go on from a checkpoint; its sources and sinks from what that before it has noted here."""
        home = self.folder.home(deed.id)
        shutil.rmtree(home.path, ignore_errors=True)
        unpacked(deed.checkpoint, home.checkpoint)
        if deed.after:
            before = self.folder.home(deed.after)
            bring_notes(before.checkpoint, home.checkpoint)
            if before.dead.is_dir():
                shutil.copytree(before.dead, home.dead)

    def _take(self, id: str) -> list[Message]:
        """Return the checkpoint of a part once nothing is at work in it: a process may outlive the agent that began it."""
        home = self.folder.home(id)
        until_s = time.monotonic() + _LEAVE_S
        while True:
            try:
                lock = Lock(home.path, "what is kept of the part,")
                break
            except RunError as error:
                if time.monotonic() > until_s:
                    return [Unfit(id, str(error))]
                time.sleep(0.1)
        try:
            return [Fetched(id, packed(home.checkpoint) if home.checkpoint.is_dir() else {})]
        finally:
            lock.release()
