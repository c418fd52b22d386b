"""The connections of a coordinator: sites that have dialed, and commands of whoever has its own certificate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from headwater.deploy.control.messages import (
    BEAT_S,
    SILENT_S,
    Answer,
    Ask,
    Hello,
    Install,
    Message,
    Ping,
    Refuse,
    Welcome,
)
from headwater.deploy.control.wire import Wire
from headwater.deploy.coordinator.machine import (
    Command,
    Coordinator,
    Drop,
    Event,
    Hand,
    Heard,
    Joined,
    Keep,
    Left,
    Say,
    Stop,
)
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.part import sealed
from headwater.deploy.token import COORDINATOR
from headwater.errors import HeadwaterError, RunError

log = logging.getLogger("headwater.deploy")

_GREET_S = 5.0


class Server:
    """A coordinator at work, within one event loop; has the state folder for itself."""

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self._lock = folder.lock()
        self._identity = folder.identity()
        self.coordinator = Coordinator(folder.read())
        self._wires: dict[str, Wire] = {}
        self._talks: set[asyncio.Task[None]] = set()
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
        self._server.close()
        for wire in list(self._wires.values()):
            await wire.close()
        for talk in list(self._talks):
            talk.cancel()

    def release(self) -> None:
        """Let others have the state folder."""
        self._lock.release()

    def handle(self, event: Event) -> None:
        """Let the coordinator decide, and do what it says."""
        for command in self.coordinator.handle(event):
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Keep():
                self.folder.write(self.coordinator.kept)
            case Say(site, message):
                self._say(site, message)
            case Hand(site):
                deployed = self.coordinator.kept.deployed
                assert deployed is not None
                self._say(site, Install(deployed.id, sealed(deployed.part(site), deployed.files, self._identity)))

    def _say(self, site: str, message: Message) -> None:
        if site in self._wires:
            self._wires[site].say(message)

    # -- connections ------------------------------------------------------------------------------------------------------

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        wire = Wire(reader, writer)
        try:
            async with asyncio.timeout(_GREET_S):
                first = await wire.hear()
            if isinstance(first, Ask) and wire.other == COORDINATOR:
                wire.say(self._answer(first))
            elif isinstance(first, Hello):
                await self._site(wire, first)
        except (TimeoutError, HeadwaterError) as error:
            log.warning("a connection from %s is closed: %s", wire.address, error)
        finally:
            self._talks.discard(task)
            await wire.close()

    async def _site(self, wire: Wire, hello: Hello) -> None:
        name = wire.other
        why = self.coordinator.why_not(name, hello)
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
                self.handle(Heard(name, message, time.time()))
        finally:
            del self._wires[name]
            log.warning("site '%s' is away", name)
            self.handle(Left(name))

    def _answer(self, ask: Ask) -> Answer:
        try:
            if ask.what == "stop":
                self.handle(Stop())
            elif ask.what == "forget":
                self.handle(Drop())
        except HeadwaterError as error:
            return Answer(why=str(error))
        return Answer(self.coordinator.describe())

    async def _beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S / 2)
            for wire in list(self._wires.values()):
                if time.monotonic() - wire.heard_s > SILENT_S:
                    wire.cut()
                else:
                    wire.say(Ping())


async def until(met: Callable[[], Any], within_s: float) -> bool:
    """Wait for something to be so; say whether it was in time."""
    end_s = time.monotonic() + within_s
    while not met():
        if time.monotonic() > end_s:
            return False
        await asyncio.sleep(0.05)
    return True
