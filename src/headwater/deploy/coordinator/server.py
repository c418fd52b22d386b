"""The connections of a coordinator: sites that have dialed, and commands of whoever has its own certificate."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater import __version__
from headwater.deploy import cut
from headwater.deploy.control.messages import (
    BEAT_S,
    SILENT_S,
    Answer,
    Ask,
    Have,
    Hello,
    Install,
    Message,
    Piece,
    Ping,
    Prepare,
    Refuse,
    Send,
    Unfit,
    Welcome,
)
from headwater.deploy.control.wire import FIRST_BYTES, Wire
from headwater.deploy.coordinator.cutting import checkpoints_then
from headwater.deploy.coordinator.description import describe
from headwater.deploy.coordinator.events import (
    Begin,
    Command,
    Cut,
    Drop,
    Event,
    Hand,
    Heard,
    Joined,
    Keep,
    Left,
    Ready,
    Recut,
    Revoke,
    Say,
    Stop,
    Undo,
)
from headwater.deploy.coordinator.machine import Coordinator
from headwater.deploy.coordinator.moves import MoveAccount, Moves
from headwater.deploy.coordinator.policing import Policing
from headwater.deploy.coordinator.stages import Stages
from headwater.deploy.coordinator.state import Deployment, Move, StateFolder
from headwater.deploy.part import SealedPart, sealed
from headwater.deploy.policies.policy_state import Decision
from headwater.deploy.promise import promises_of
from headwater.deploy.recut import check_move, going_on, movable, moved
from headwater.deploy.revoked import changed_ns, read_revoked, refuses, revoked_file
from headwater.deploy.token import COORDINATOR
from headwater.errors import HeadwaterError, RunError, listed, suggestion
from headwater.flow.flow import Flow

log = logging.getLogger("headwater.deploy")

_GREET_S = 5.0
_ANSWER_S = 10.0  #: for a long answer to be taken, as who has asked waits for it
_LOOK_S, _LONGEST_LOOK_S = 0.5, 30.0  #: between two looks of a policy; twice as long each time that one breaks
_MOVE_S = 120.0  #: that a move may take from when state has gone ahead, before the flow goes on as it was


class Server:
    """A coordinator at work, within one event loop; has the state folder for itself."""

    def __init__(self, folder: StateFolder, flow_of: Callable[[Deployment, Path], Flow] | None = None) -> None:
        """Take the state folder; `flow_of` imports a flow that is deployed, in a folder for its files: moves need it."""
        self.folder, self._flow_of = folder, flow_of
        self._lock = folder.lock()
        self._identity = folder.identity()
        self.coordinator = Coordinator(folder.read(), read_revoked(folder.certificates))
        self._heeded = self._unread = 0  #: the file of what is revoked that was looked at last, and that could not be
        self._wires: dict[str, Wire] = {}
        self._talks: set[asyncio.Task[None]] = set()
        self._flow: Flow | None = None
        self._move_s: float | None = None  #: when the move began that is not over
        self._travels_s = 0.0  #: when state was last on its way ahead
        self._bytes = {"ahead_bytes": 0, "last_bytes": 0}  #: of the last move: before parts stood still, and then
        self._stages = Stages()  #: of the last move
        self._moves = Moves()
        self.policing = Policing(self.coordinator, folder.path)
        self._look: asyncio.Task[None] | None = None  #: the policy's
        self._look_s, self._complaint = _LOOK_S, ""  #: until its next one, and how the last one broke
        self.unkept: RunError | None = None  #: why its state could not be written: it does nothing from then on
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen; a port of 0 is chosen by the system, see `port`."""
        try:
            self._server = await asyncio.start_server(
                self._met, host, port, ssl=self._identity.server(), ssl_handshake_timeout=_GREET_S
            )
        except OSError as error:
            raise RunError(f"the coordinator cannot listen at {host}:{port}: {error.strerror or error}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        self.folder.note_address(host, self.port)
        self._beat = asyncio.create_task(self._beating())

    async def close(self) -> None:
        """Leave; the sites go on as they are."""
        self._beat.cancel()
        if self._look is not None:
            self._look.cancel()
        self._server.close()
        for wire in list(self._wires.values()):
            await wire.close()
        for talk in list(self._talks):
            talk.cancel()

    def release(self) -> None:
        """Let others have the state folder."""
        self._lock.release()

    def handle(self, event: Event) -> None:
        """Let the coordinator decide, and do what it says; RunError, and nothing is done, once its state cannot be kept."""
        if self.unkept is not None:
            raise self.unkept
        events: list[Event] = [event]
        for each in events:
            for command in self.coordinator.handle(each):
                events += self._do(command)
        if self._move_s is not None:
            self._note_times()

    def _note_times(self) -> None:
        deployed, now_s = self.coordinator.kept.deployed, time.monotonic()
        if deployed is not None and deployed.moving is not None:
            if deployed.moving.cut:
                self._stages.end("ahead", now_s)
            return
        self._stages.end("hand over", now_s)
        if self.coordinator.all_run():
            self._stages.end("start", now_s)
            self._move_s = None
            self._moves.end(self._stages, self.coordinator.undone)

    def _do(self, command: Command) -> list[Event]:
        """Do what the coordinator says; return what it should know of it."""
        match command:
            case Keep():
                self._keep()
            case Say(site, message):
                if isinstance(message, Send):  # said once processes wait for all new parts
                    self._stages.end("prepare", time.monotonic())
                self._say(site, message)
            case Ready(site, deployed) | Hand(site, deployed):
                return self._hand(command, site, deployed)
            case Cut(deployed, checkpoints):
                self._stages.end("stop", time.monotonic())
                self._bytes["last_bytes"] = sum(len(each) for files in checkpoints.values() for each in files.values())
                task = asyncio.get_running_loop().create_task(self._cut(deployed, checkpoints))
                self._talks.add(task)
                task.add_done_callback(self._talks.discard)
        return []

    def _keep(self) -> None:
        """Have the state safe; who goes on after a crash from what is not there would have parts run that are gone."""
        try:
            self.folder.write(self.coordinator.kept)
        except RunError as error:
            self.unkept = RunError(f"{error}; the coordinator ends, and the sites go on: start it again when it can be")
            raise self.unkept from None

    def _hand(self, command: Ready | Hand, site: str, deployed: Deployment) -> list[Event]:
        """Send a site its part; one that cannot be made is as one that the site does not take: nobody asks for it again."""
        id = deployed.id_at(site)
        try:
            if isinstance(command, Ready):
                self._say(site, Prepare(id, self._sealed(site, deployed), command.after))
            else:
                part = None if command.prepared else self._sealed(site, deployed)
                self._say(site, Install(id, part, dict(command.checkpoint), command.after))
        except Exception as error:  # whatever it is, other sites have theirs, and the flow that runs goes on
            why = f"the coordinator cannot make it: {_text(error)}"
            return [Heard(site, Unfit(id, why), time.time())]
        return []

    def _sealed(self, site: str, deployed: Deployment) -> SealedPart:
        return sealed(deployed.part(site), deployed.files, self._identity)

    def _say(self, site: str, message: Message) -> None:
        if site in self._wires:
            self._wires[site].say(message)

    # -- connections ------------------------------------------------------------------------------------------------------

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        wire, first = Wire(reader, writer), None
        try:
            async with asyncio.timeout(_GREET_S):
                first = await wire.hear(FIRST_BYTES)
            if isinstance(first, Ask) and wire.other == COORDINATOR:
                wire.say(await self._answer(first))
                await wire.close(_ANSWER_S)
            elif isinstance(first, Hello):
                await self._site(wire, first)
        except asyncio.CancelledError:
            pass  # the coordinator leaves, which asyncio would tell as an error
        except (TimeoutError, HeadwaterError) as error:
            log.warning("a connection from %s is closed: %s", wire.address, error)
            if first is None:  # whoever has another version hears why
                wire.say(Refuse(f"{error}; the coordinator runs Headwater {__version__}, install the same at both"))
        finally:
            self._talks.discard(task)
            with suppress(asyncio.CancelledError):
                await wire.close()

    async def _site(self, wire: Wire, hello: Hello) -> None:
        name = wire.other
        if name in self._wires:  # it may be the same site, whose last connection is dead and does not look so yet
            await until(lambda: name not in self._wires, SILENT_S + BEAT_S)
        self._heed_revoked()
        why = self.coordinator.why_not(name, hello, wire.serial)
        if why is not None:
            log.warning("site '%s' at %s is not admitted: %s", name, wire.address, why)
            wire.say(Refuse(why))
            return
        wire.say(Welcome())
        self._wires[name] = wire
        log.info("site '%s' has joined from %s", name, wire.address)
        self.handle(Joined(name, hello, wire.address))
        try:
            while (message := await wire.hear()) is not None:
                if isinstance(message, Piece | Have):
                    self._travels_s = time.monotonic()
                    self._bytes["ahead_bytes"] += len(message.data) if isinstance(message, Piece) else 0
                self.handle(Heard(name, message, time.time()))
        finally:
            del self._wires[name]
            log.warning("site '%s' is away", name)
            if self.unkept is None:
                self.handle(Left(name))

    def _heed_revoked(self) -> None:
        """Hang up on sites whose certificates were revoked since, and have the others refuse them at bridges."""
        at_ns = changed_ns(revoked_file(self.folder.certificates))
        if at_ns == self._heeded:
            return
        try:
            revoked = read_revoked(self.folder.certificates)
        except RunError as error:  # a stranger with many connections may leave no file to open: it is tried again
            if at_ns != self._unread:
                self._unread = at_ns
                log.error("what was refused before is: %s", error)
            return
        self._heeded = at_ns
        for name, wire in self._wires.items():
            if refuses(revoked, name, wire.serial):
                log.warning("site '%s' at %s is revoked: its connection is cut", name, wire.address)
                wire.cut()
        if self.unkept is None:
            self.handle(Revoke(revoked))

    async def _answer(self, ask: Ask) -> Answer:
        try:
            if ask.what == "stop":
                self.handle(Stop())
            elif ask.what == "forget":
                self.handle(Drop())
            elif ask.what == "undo":
                self._undo("it took too long")
            elif ask.what == "open":
                self._open(ask)
            elif ask.what in ("move", "drain", "place"):
                await self._begin(ask)
            return Answer(self.describe())
        except Exception as error:
            return Answer(why=_text(error))

    def describe(self) -> dict[str, Any]:
        """Describe the deployment and all sites, and what came of the last move."""
        document = describe(self.coordinator.kept.deployed, self.coordinator.sites)
        if document["flow"] is not None:
            document["flow"]["moving"] = document["flow"]["moving"] or self._move_s is not None
            document["flow"]["moved"] = {"why": self.coordinator.undone, **self._move_figures()}
            deployed = self.coordinator.kept.deployed
            document["flow"]["policy"] = None if deployed is None else self.policing.describe(deployed)
            document["flow"]["moves"] = self._moves.describe(deployed)
        return document

    def _move_figures(self) -> dict[str, Any]:
        return {"gap_s": self._stages.gap_s, "stages_s": self._stages.to_json(), **self._bytes}

    # -- moves ------------------------------------------------------------------------------------------------------------

    async def _begin(self, ask: Ask) -> None:
        """Find out whether a move can be, and begin it."""
        deployed = self.coordinator.kept.deployed
        if deployed is None:
            raise RunError("nothing is deployed")
        names = [*([ask.site] if ask.site else []), *(ask.steps if ask.what == "drain" else ()), *ask.sites.values()]
        for name in names:
            if name not in deployed.known:
                slip = suggestion(name, deployed.known) or f"; its sites are {listed(deployed.known)}"
                raise RunError(f"the net of flow '{deployed.name}' has no site '{name}'{slip}")
        flow = await self._imported(deployed)
        if ask.what == "drain" and not ask.site:
            await self._drain(flow, deployed, ask.steps[0])
            return
        steps = movable(flow, deployed.sites, ask.steps[0]) if ask.what == "drain" else ask.steps or list(ask.sites)
        placed = {**deployed.sites, **ask.sites}
        sites = placed if ask.what == "place" else moved(flow, deployed.sites, steps, ask.site)
        if sites == deployed.sites:
            there = f"run at '{ask.site}'" if ask.site else "run there"
            raise RunError(f"nothing is to be moved: {listed(steps)} of flow '{deployed.name}' {there}")
        self._move(flow, deployed, sites, "hand", f"{ask.what} was asked for")
        if deployed.policed is not None:
            by_hand = [*steps, *(step for step, at in sites.items() if at != deployed.sites[step])]
            deployed.policed.hold({step: sites[step] for step in by_hand if step in sites}, time.time())
            self._keep()

    def _move(self, flow: Flow, deployed: Deployment, sites: dict[str, str], by: str, why: str) -> str:
        """Begin a move to where each step should be, and return its name; RunError or PlacementError if it cannot be."""
        machine = self.coordinator
        check_move(flow, deployed.sites, sites)
        then = cut.Cut(flow, sites)
        there = {name for name in sites.values() if name in machine.sites}
        listens = sorted(name for name in there if machine.sites[name].hello.host is not None)
        id = f"{deployed.id.rpartition('-')[0]}-{secrets.token_hex(3)}"
        promises = {} if deployed.policed is None else promises_of(then, deployed.policed)
        same = [site for site in then.sites if promises.get(site) == deployed.promises.get(site)]
        on = [site for site in going_on(flow, deployed.sites, sites) if site in same]
        move = Move(
            id=id,
            sites=sites,
            joined=then.joined,
            streams=then.streams,
            go_on=on if deployed.streams else [],  # of what an earlier version has deployed nothing can go on
            listens=listens,
            promises=promises,
        )
        self.handle(Begin(move))
        self._move_s, self._stages = time.monotonic(), Stages()
        self._stages.begin(self._move_s)
        self._bytes = dict.fromkeys(self._bytes, 0)
        steps = {step: (deployed.sites[step], to) for step, to in sites.items() if deployed.sites[step] != to}
        self._moves.begin(MoveAccount(id, time.time(), by, why, steps))
        return id

    # -- the policy -------------------------------------------------------------------------------------------------------

    async def _drain(self, flow: Flow, deployed: Deployment, site: str) -> None:
        """Have a policy choose where what can leave a site goes; it stays drained until it is opened again."""
        loop = asyncio.get_running_loop()
        if not movable(flow, deployed.sites, site):
            raise RunError(f"nothing is to be moved: no step of flow '{deployed.name}' that can move runs at '{site}'")
        decision = await loop.run_in_executor(None, self.policing.leaving, flow, deployed, site, time.time())
        self._carry_out(flow, deployed, decision)
        assert deployed.policed is not None
        deployed.policed.drained = [*deployed.policed.drained, site]
        deployed.policed.let_go([step for step, at in deployed.policed.held.items() if at == site])
        self._keep()

    def _open(self, ask: Ask) -> None:
        """Let a policy use a site again that was drained, or move steps again that somebody has moved."""
        deployed = self.coordinator.kept.deployed
        policed = None if deployed is None else deployed.policed
        if ask.steps:
            fixed = {} if policed is None else policed.held
            steps = list(fixed) if deployed is not None and ask.steps == [deployed.name] else ask.steps
            free = [step for step in steps if step not in fixed]
            if policed is None or free or not steps:
                raise RunError(f"no policy holds {listed(free or ask.steps)}: nobody has moved that by hand")
            policed.let_go(steps)
        elif policed is None or ask.site not in policed.drained:
            raise RunError(f"site '{ask.site}' is not drained")
        else:
            policed.drained = [each for each in policed.drained if each != ask.site]
        self._keep()

    def _carry_out(self, flow: Flow, deployed: Deployment, decision: Decision) -> None:
        sites = {**deployed.sites, **{step: to for step, (_, to) in decision.moves.items()}}
        assert deployed.policed is not None
        decision.id = self._move(flow, deployed, sites, deployed.policed.name, decision.why)
        self.policing.note(flow, deployed, decision)

    def _let_policy_look(self) -> None:
        deployed = self.coordinator.kept.deployed
        if self._look is not None and not self._look.done():
            return
        if deployed is None or deployed.policed is None or deployed.phase != "running" or self._flow_of is None:
            return
        if deployed.moving is None and self._move_s is None:
            deployed.policed.hold_only(deployed.sites)
            self._look = asyncio.create_task(self._looking(deployed))

    async def _looking(self, deployed: Deployment) -> None:
        loop = asyncio.get_running_loop()
        try:
            flow = await self._imported(deployed)
            stages, undone, by = self._stages, self.coordinator.undone, self.coordinator.refused_by
            if await loop.run_in_executor(None, self.policing.came, flow, deployed, stages, undone, by):
                self._keep()
            if self.policing.measure(flow, deployed, time.time()):
                self._keep()
            decision = await loop.run_in_executor(None, self.policing.decide, flow, deployed, time.time())
            now = self.coordinator.kept.deployed
            if decision is not None and now is deployed and deployed.moving is None and deployed.phase == "running":
                self._carry_out(flow, deployed, decision)
                self._keep()
            self._look_s, self._complaint = _LOOK_S, ""
        except Exception as error:
            self._look_s = min(2 * self._look_s, _LONGEST_LOOK_S)
            why = _text(error)
            if why != self._complaint:
                log.warning("the policy of flow '%s': %s", deployed.name, why)
            self._complaint = why
        await asyncio.sleep(self._look_s)

    async def _imported(self, deployed: Deployment) -> Flow:
        assert self._flow_of is not None
        if self._flow is None:
            loop, place = asyncio.get_running_loop(), self.folder.path / "flow"
            try:
                self._flow = await loop.run_in_executor(None, self._flow_of, deployed, place)
            except OSError as error:
                raise RunError(f"the flow's files cannot be written into {place}: {error.strerror}") from None
        return self._flow

    async def _cut(self, deployed: Deployment, checkpoints: Mapping[str, Mapping[str, bytes]]) -> None:
        assert deployed.moving is not None
        id = deployed.moving.id
        try:
            flow = await self._imported(deployed)
            loop = asyncio.get_running_loop()
            parts = await loop.run_in_executor(
                None, checkpoints_then, flow, deployed, checkpoints, self.folder.path / "moving"
            )
        except Exception as error:  # whatever it is, the flow goes on as it was
            self.handle(Undo(id, _text(error)))
        else:
            self._stages.end("cut", time.monotonic())
            self.handle(Recut(id, parts))

    def _undo(self, why: str) -> None:
        deployed = self.coordinator.kept.deployed
        if deployed is not None and deployed.moving is not None:
            self.handle(Undo(deployed.moving.id, why))

    # -- the beat ---------------------------------------------------------------------------------------------------------

    async def _beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S / 2)
            deployed = self.coordinator.kept.deployed
            if deployed is not None and deployed.moving is not None:
                self._move_s = self._move_s or time.monotonic()
                if time.monotonic() - max(self._move_s, self._travels_s) > _MOVE_S:
                    self._undo(f"it was not done within {_MOVE_S:g} s")
            self._heed_revoked()
            self._let_policy_look()
            for wire in list(self._wires.values()):
                if time.monotonic() - wire.heard_s > SILENT_S:
                    wire.cut()
                else:
                    wire.say(Ping())


def _text(error: Exception) -> str:
    """Say what broke; what none of ours has raised is a bug, here or in a flow's own file, and its traceback is told too."""
    if isinstance(error, HeadwaterError | OSError):
        return str(error)
    log.error("the coordinator broke for a moment", exc_info=error)
    return f"{type(error).__name__}: {error}"


async def until(met: Callable[[], Any], within_s: float) -> bool:
    """Wait for something to be so; say whether it was in time."""
    end_s = time.monotonic() + within_s
    while not met():
        if time.monotonic() > end_s:
            return False
        await asyncio.sleep(0.05)
    return True
