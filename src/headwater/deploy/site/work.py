"""Does what a site's agent decides: parts are flows of a service, which starts them, watches them, and starts them again."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from headwater import __version__
from headwater.cores import usable_cores
from headwater.deploy.ahead import Kept, Sending, large_states, may_lack, sweep
from headwater.deploy.bridge_ends import (
    note_addresses,
    note_ended,
    note_revoked,
    note_routes,
    read_outgoing,
    read_port,
    read_routed,
)
from headwater.deploy.control.messages import (
    PROTOCOL,
    Fetched,
    Have,
    Hello,
    Kind,
    Message,
    PartState,
    Piece,
    Report,
    Took,
    Unfit,
)
from headwater.deploy.part import Part, SealedPart, unpack
from headwater.deploy.site.agent import (
    Agent,
    Deed,
    HandOver,
    KeepPiece,
    Locate,
    Remove,
    SendAhead,
    SendMore,
    Start,
    Stop,
    Unpack,
    Warm,
)
from headwater.deploy.site.folder import SiteFolder
from headwater.deploy.site.on_spark import spark_folder
from headwater.deploy.site.promise_on_spark import refusal_on_spark
from headwater.deploy.site.resources import Site
from headwater.deploy.state_transfer import bring_notes, check_size, lay_bridges, make_safe, packed, unpacked
from headwater.engine.checkpoint.chain import let_go
from headwater.engine.checkpoint.store import Stored
from headwater.errors import HeadwaterError, RateError, RunError
from headwater.io.lock import Lock
from headwater.serve.claims import leave_files
from headwater.serve.service import Service, UnknownFlowError

log = logging.getLogger("headwater.site")

_HEAVY_BYTES = 2**24  #: of large state: more than that does not go as one message, which everybody has in memory
_LEAVE_S = 20.0  #: for a process to leave whose agent is gone
_OVER_S = 3600.0  #: after which no move is that state has come for
_SPARK_LEAVES_S = 60.0  #: and for Spark: a micro-batch comes to its end, and its state is read back


class _Step(msgspec.Struct, frozen=True, rename={"taken": "in"}):
    name: str
    taken: int


class _Sampled(msgspec.Struct):
    records_in: int
    records_out: dict[str, int]
    steps: list[_Step] = []


class _Delays(msgspec.Struct, frozen=True):
    p50: float = 0.0
    p99: float = 0.0


class _Last(msgspec.Struct, frozen=True):
    records_out: dict[str, int] = {}
    latency_ms: _Delays = _Delays()


class _Process(msgspec.Struct, frozen=True):
    cores: float = 0.0
    lanes: int = 1


class _Sample(msgspec.Struct):
    total: _Sampled
    last: _Last = _Last()
    process: _Process = _Process()


class _Prepared(NamedTuple):
    part: Part
    pid: int | None  #: of the process of the part before it, whose promise it takes over: that may have stopped since


class Work:
    """A site at work, whatever thread tells it something."""

    def __init__(self, folder: SiteFolder, service: Service, site: Site | None = None) -> None:
        self.folder, self._service, self._site = folder, service, site or Site()
        announced = [path.name for path in folder.ahead.glob("*")]
        self._agent = Agent({id: not folder.home(id).is_stopped for id in folder.ids()}, announced)
        self._lock = threading.Lock()
        self._prepared: dict[str, _Prepared] = {}  #: those of the agent
        self._sending: Sending | None = None  #: state that goes ahead, of the last move of which some does
        self._heavy: HandOver | None = None  #: the last that there was too much for to go as one message
        sweep(folder.ahead, _OVER_S, time.time())

    @property
    def has_parts(self) -> bool:
        """Whether there is something that goes on without the coordinator."""
        return bool(self._agent.parts)

    def on_change(self, notify: Callable[[], None]) -> None:
        """Have something called, by any thread, when a part is not what it was."""
        self._service.on_change = notify

    def hello(self) -> Hello:
        """Return the site's first word to a coordinator; what one before it was sent may be lost."""
        self._heavy = None
        listen = self.folder.listen
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        cores = usable_cores()
        host, is_spark = None if listen is None else listen[0], self.folder.master is not None
        kind: Kind = "spark" if is_spark else "engine"
        return Hello(self.folder.name, __version__, PROTOCOL, host, cores, memory, kind)

    def report(self, word: int) -> Report:
        """Return how the site fares; `word` is the last word of the coordinator that is done."""
        served = {status["name"]: status for status in self._service.statuses()}
        if self._lock.acquire(blocking=False):  # not while a part is being taken, which is there in parts
            try:
                self.folder.sweep({*served, *self._agent.prepared})
            finally:
                self._lock.release()
        parts = [self._state(id, served.get(id)) for id in list(self._agent.parts)]
        load, free = os.getloadavg()[0], shutil.disk_usage(self.folder.path).free
        ready = [self._ready(id) for id in list(self._agent.prepared)]
        return Report(parts, load, time.time(), free, word, self._site.resources(), ready)

    def told(self, message: Message) -> list[Message]:
        """Do what a message asks for; return what the coordinator should know of it."""
        with self._lock:
            return [answer for deed in self._agent.told(message) for answer in self._do(deed)]

    def _state(self, id: str, status: dict[str, object] | None) -> PartState:
        port, routed = read_port(self.folder.sources(id)), read_routed(self.folder.sources(id))
        if status is None:  # the service has not looked at it yet
            return PartState(id, "starting" if self._agent.parts.get(id) else "stopped", port=port, routed=routed)
        sampled, sample = _Sample(_Sampled(0, {})), None
        with suppress(UnknownFlowError):  # it has been removed since
            sample = self._service.sample_of(id)
        if sample is not None:
            sampled = msgspec.json.decode(sample, type=_Sample)
        counted, last = sampled.total, sampled.last
        document = {"id": id, "phase": status["state"], "why": status["why"], "pid": status["pid"], "port": port}
        document |= {
            "routed": routed,
            "restarts": status["restarts"],
            "records_in": counted.records_in,
            "records_out": sum(counted.records_out.values()),
            "sinks": counted.records_out,
            "outgoing": read_outgoing(self.folder.sources(id)),
            "taken": {step.name: step.taken for step in counted.steps},
            "cores": sampled.process.cores,
            "lanes": sampled.process.lanes,
            "delay_ms": (last.latency_ms.p50, last.latency_ms.p99) if any(last.records_out.values()) else None,
        }
        return msgspec.convert(document, PartState)

    def _ready(self, id: str) -> PartState:
        return PartState(id, self._service.warm_pool.warmth(id), port=read_port(self.folder.sources(id)))

    def _do(self, deed: Deed) -> list[Message]:
        match deed:
            case Warm():
                return self._warm(deed)
            case Unpack():
                return self._unpack(deed)
            case HandOver():
                return self._hand_over(deed)
            case SendAhead():
                return self._send_ahead(deed)
            case SendMore(took):
                return [] if self._sending is None else self._sending.took(took)
            case KeepPiece(piece):
                return [*self._keep_piece(piece), Took(piece.move, piece.step, piece.key, piece.at)]
            case Locate(id, addresses, ended, routes, revoked):
                note_revoked(self.folder.sources(id), dict(revoked))  # before it is told whom to dial
                note_addresses(self.folder.sources(id), dict(addresses))
                note_ended(self.folder.sources(id), list(ended))
                if routes is not None:
                    note_routes(self.folder.sources(id), routes)
            case Start(id):
                self._service.look()
                self._service.act(id, "start")
            case Stop(id):
                self._service.look()
                self._service.act(id, "stop")
            case Remove(id):
                self._cool(id)
                self.folder.drop(id)
                self._service.look()
        return []

    def _warm(self, deed: Warm) -> list[Message]:
        try:
            part = self._checked(deed.id, deed.sealed)
            pid = self._pid(deed.after)
            self._check_promise(part, pid)  # now, while what runs can just go on
            self._only(deed.id)
            Kept(self.folder.ahead / deed.id).expect()
            file = self.folder.prepare(deed.id, part.every, part.promise)
            self._service.warm(deed.id, file)
        except (HeadwaterError, OSError, ValueError) as error:
            log.error("a part is not taken: %s", error)
            return [Unfit(deed.id, str(error))]
        self._prepared[deed.id] = _Prepared(part, pid)
        self._agent.prepares(deed.id)
        return []

    def _send_ahead(self, deed: SendAhead) -> list[Message]:
        """Send large state ahead, unless what waits at bridges is too much already: nothing has stopped yet."""
        self._only(deed.move)
        try:
            check_size(sum(each.bytes_kept for each in read_outgoing(self.folder.sources(deed.id)).values()))
        except RunError as error:
            return [Unfit(deed.move, str(error))]
        look = partial(large_states, self.folder.home(deed.id).checkpoint, deed.steps, deed.move)
        return self._begin_to_send(deed.id, deed.move, deed.steps, look)

    def _begin_to_send(
        self, id: str, move: str, steps: Mapping[str, str], look: Callable[[], list[tuple[str, Stored]]]
    ) -> list[Message]:
        """Send state by pieces; what stays at this site is kept here, for the part that comes after."""

        def keep(piece: Piece) -> list[Message] | None:
            return self._keep_piece(piece) if steps[piece.step] == self.folder.name else None

        self._sending = Sending(id, move, look, keep)
        return self._sending.more()

    def _only(self, move: str) -> None:
        """Remove what is here for other moves: there is one at a time, and this site was away when they ended."""
        for path in self.folder.ahead.glob("*"):
            if path.name != move:
                Kept(path).remove()
        for id in self.folder.prepared_ids():
            if id != move:
                self.folder.drop_prepared(id)

    def _keep_piece(self, piece: Piece) -> list[Message]:
        try:
            is_whole = Kept(self.folder.ahead / piece.move).take(piece)
        except OSError as error:
            return [Unfit(piece.move, f"state that goes ahead cannot be kept: {error.strerror}")]
        except RunError as error:
            return [Unfit(piece.move, str(error))]
        return [Have(piece.move, piece.key)] if is_whole else []

    def _cool(self, id: str) -> None:
        self._service.warm_pool.end(id)
        Kept(self.folder.ahead / id).remove()
        for part in list(self._agent.parts):
            let_go(self.folder.home(part).checkpoint, id)
        self._prepared.pop(id, None)
        self.folder.drop_prepared(id)

    def _checked(self, id: str, sealed: SealedPart) -> Part:
        """Return a part that was sent, once it is here and found right."""
        part = unpack(sealed, self.folder.sources(id), self.folder.name, self.folder.identity().authority)
        if part.id != id:
            raise RunError(f"the part that was sent as '{id}' calls itself '{part.id}'")
        return part

    def _unpack(self, deed: Unpack) -> list[Message]:
        try:
            part, pid = self._prepared.get(deed.id) or self._unprepared(deed)
            if deed.checkpoint or deed.after:
                self._take_over(deed)
            # once more: another flow may have been promised the cores meanwhile, if the process that waits has not
            self._check_promise(part, pid, self._service.warm_pool.pid(deed.id))
            self.folder.add(deed.id, part.every, part.promise)
            self.folder.drop_prepared(deed.id)
        except (HeadwaterError, OSError, ValueError) as error:
            log.error("a part is not taken: %s", error)
            return [Unfit(deed.id, str(error))]
        self._prepared.pop(deed.id, None)
        Kept(self.folder.ahead / deed.id).remove()
        self._agent.has(deed.id)
        self._service.look()
        return []

    def _unprepared(self, deed: Unpack) -> _Prepared:
        if deed.sealed is None:
            raise RunError(f"part '{deed.id}' was not prepared here")
        return _Prepared(self._checked(deed.id, deed.sealed), self._pid(deed.after))

    def _pid(self, id: str) -> int | None:
        """Return the process of a part; None for one that has none."""
        entry = next((status for status in self._service.statuses() if status["name"] == id), None)
        pid: int | None = None if entry is None else entry["pid"]
        return pid

    def _check_promise(self, part: Part, *pids: int | None) -> None:
        """Refuse a part whose promise this site cannot keep, before it is asked to: the ledger of the machine decides.

        What is held for some processes is for this part: that of the part before it, and its own.
        """
        if part.promise is None:
            return
        if self.folder.master is None:
            refusal = str(self._site.refusal(part.promise, *pids) or "")
        else:
            refusal = refusal_on_spark(self._site, self.folder.master, part.promise, *pids)
        if refusal:
            raise RateError(f"site '{part.site}' cannot promise {part.promise.contract} to '{part.flow}': {refusal}")

    def _take_over(self, deed: Unpack) -> None:
        """Have a part go on from a checkpoint; its sources and sinks from what that before it has noted here."""
        home = self.folder.home(deed.id)
        shutil.rmtree(home.path, ignore_errors=True)
        unpacked(deed.checkpoint, home.checkpoint)
        if may_lack(deed.checkpoint):
            Kept(self.folder.ahead / deed.id).fill_in(home.checkpoint)
        lay_bridges(home.checkpoint)
        if deed.after:
            before = self.folder.home(deed.after)
            bring_notes(before.checkpoint, home.checkpoint)
            leave_files(before.path)  # it has stopped, and starts again only if the new part never does
            if before.dead.is_dir():
                shutil.copytree(before.dead, home.dead)
        make_safe(home.path)  # before anybody hears that it is here: what it was made from is removed then

    def _hand_over(self, deed: HandOver) -> list[Message]:
        """Return the checkpoint of a part once nothing is at work in it: a process may outlive the agent that began it."""
        id, home = deed.id, self.folder.home(deed.id)
        leave_s = _LEAVE_S if self.folder.master is None else _SPARK_LEAVES_S
        until_s = time.monotonic() + leave_s
        self._service.wait_stopped(id, leave_s)
        while True:
            try:
                lock = Lock(home.path, "what is kept of the part,")
                break
            except RunError as error:
                if time.monotonic() > until_s:
                    return [Unfit(id, str(error))]
                time.sleep(0.01)
        try:
            if spark_folder(home).exists():  # its process could not have it kept as all others do
                self._service.rest(id, self.folder.file(id))
            if home.checkpoint.is_dir() and self._heavy != deed:
                much = large_states(home.checkpoint, deed.steps, deed.move, deed.known)
                if sum(stored.size for _, stored in much) > _HEAVY_BYTES:
                    self._heavy = deed  # should that come to nothing, all of it goes
                    return self._begin_to_send(id, deed.move, deed.steps, lambda: much)
            files = packed(home.checkpoint, deed.known) if home.checkpoint.is_dir() else {}
            return [Fetched(id, files, deed.move)]
        except (HeadwaterError, OSError) as error:
            log.error("the checkpoint of part '%s' cannot be taken: %s", id, error)
            return [Unfit(id, f"its checkpoint cannot be taken: {error}")]
        finally:
            lock.release()
