"""The network side of bridges: one thread with an event loop that keeps all connections of a process.

Which site listens and which one dials has nothing to do with who sends: a site behind NAT dials, and takes records by that
connection as well. A connection that breaks is made again; what was on its way is for the protocol to sort out.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - else it is loaded by the first connection, for which records wait
import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

from headwater.deploy.bridge.messages import MOST_BYTES, Hello, Message, Parser, Refuse, encoded
from headwater.deploy.bridge.protocol import PING_S, RefusedError
from headwater.deploy.bridge.uplink import Meter
from headwater.deploy.revoked import Revoked, refuses, shown_serial
from headwater.errors import InputError

log = logging.getLogger(__name__)

_GREET_S = 5.0  #: for a connection to be made, and for the other end to say who it is
_FIRST_S, _MOST_S = 0.05, 2.0  #: between two attempts to connect
_GONE_S = 2.0  #: for which a site may be away without a word about it: its part may be moving
_QUIET_S = 30.0  #: between two warnings about one bridge
_CLOSE_S = 0.5  #: for what was said to leave, and for the other ends to hang up too
_UNHEARD = 16  #: messages to an end that is not there yet: who calls says hello, and that it is there
_FIRST_BYTES = 2**16  #: of one message of who has not said yet which end it is for
_HIGH_BYTES = 2**20  #: written and not sent yet, from which on an end is not asked for more

Address = tuple[str, int]  #: host and port
#: where the other site is; asked before each attempt where it may change, and None while it is not known
Dial = Address | Callable[[], Address | None]


class End(Protocol):
    """An end of a bridge: what `Outbound` and `Inbound` have for the network."""

    machine: Any
    priority: int  #: of what a sender has
    wake: Callable[[], None]

    def connected(self, now_s: float) -> list[Message]:
        """Return what to greet with."""

    def heard(self, message: Message, now_s: float) -> list[Message]:
        """Take a message; return what to answer."""

    def next(self, most_bytes: int | None = None) -> list[Message]:
        """Return what there is to say, about so many bytes."""


class Attaching(Protocol):
    """What connects the ends of bridges: `Links`, or what makes them when they are first needed."""

    def attach(self, end: End, dial: Dial | None = None, *, name: str | None = None) -> None:
        """Connect an end."""

    def detach(self, end: End) -> None:
        """Hang up."""


class Links:
    """All connections of a process. `server` and `client` are the TLS contexts; without them nothing is encrypted.

    `listen` is where other sites reach this one, as (host, port); a port of 0 is chosen by the system, see `port`. A `meter`
    says when more may be sent.
    """

    def __init__(
        self,
        listen: tuple[str, int] | None = None,
        *,
        server: ssl.SSLContext | None = None,
        client: ssl.SSLContext | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._server_tls, self._client_tls, self._meter = server, client, meter
        self._pumping: asyncio.TimerHandle | None = None
        self._ends: dict[tuple[str, str], _Attached] = {}  #: by bridge and role
        self._connections: dict[_Connection, asyncio.Transport] = {}
        self._revoked: Revoked = {}
        self._warned_s = -_QUIET_S  #: when it was last told that somebody is refused
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headwater-bridges", daemon=True)
        self._thread.start()
        self.port = 0
        if listen is not None:
            try:
                self._server: asyncio.Server = self._call(self._listen(*listen))
            except InputError:
                self.close()
                raise
            self.port = self._server.sockets[0].getsockname()[1]

    def attach(self, end: End, dial: Dial | None = None, *, name: str | None = None) -> None:
        """Connect an end: dial the other site, or wait for it to call. `name` is whom its certificate must be for.

        Whoever calls with a certificate for somebody else is not heard, though the same authority has issued it: a site
        that is admitted may neither take nor send what is not for it.
        """
        self._call(self._attach(end, dial, name))

    def detach(self, end: End) -> None:
        """Say what is still to be said, and hang up; nothing is left to do where all links are closed."""
        if self._thread.is_alive():
            self._call(self._detach(end))

    def refuse(self, revoked: Revoked) -> None:
        """Hang up on those whose certificates are revoked, and on whoever calls or is called with one from now on."""
        if self._thread.is_alive():
            self._call(self._refuse(revoked))

    def hurry(self) -> None:
        """Try again at once where it is waited between two attempts: somebody may be elsewhere by now."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._hurry)

    def close(self) -> None:
        """Hang up everywhere."""
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    # -- in the loop --------------------------------------------------------------------------------------------------

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        try:
            return await self._loop.create_server(
                lambda: _Connection(self, None),
                host,
                port,
                ssl=self._server_tls,
                ssl_handshake_timeout=self._handshake_s(),
            )
        except OSError as error:
            raise InputError(f"cannot listen for bridges at {host}:{port}: {error.strerror or error}") from error

    def _handshake_s(self) -> float | None:
        return None if self._server_tls is None else _GREET_S

    async def _attach(self, end: End, dial: Dial | None, name: str | None) -> None:
        attached = _Attached(self._loop, end, name)
        self._ends[end.machine.bridge, end.machine.role] = attached
        for connection in list(self._connections):
            connection.meet_late()
        if dial is not None:
            attached.task = self._loop.create_task(self._keep_dialing(attached, dial, name))

    async def _refuse(self, revoked: Revoked) -> None:
        self._revoked = revoked
        for connection in list(self._connections):
            connection.leave_if_revoked()

    def is_revoked(self, certificate: Mapping[str, Any] | None) -> bool:
        """Say whether a certificate that was shown is refused; it is warned of that now and then."""
        names = _names(certificate)
        if not any(refuses(self._revoked, name, shown_serial(certificate)) for name in names):
            return False
        if time.monotonic() - self._warned_s > _QUIET_S:
            self._warned_s = time.monotonic()
            log.warning("bridges do not talk to %s: the certificate that it shows is revoked", ", ".join(names))
        return True

    def _hurry(self) -> None:
        for attached in self._ends.values():
            attached.hurried.set()

    async def _detach(self, end: End) -> None:
        attached = self._ends.pop((end.machine.bridge, end.machine.role), None)
        if attached is None:
            return
        if attached.task is not None:
            attached.task.cancel()
        if attached.connection is not None:
            attached.connection.hang_up()

    async def _close(self) -> None:
        if self.port:
            self._server.close()
        leaving: list[asyncio.Task[Any]] = [
            attached.task for attached in self._ends.values() if attached.task is not None
        ]
        for attached in list(self._ends.values()):
            await self._detach(attached.end)
        for connection in list(self._connections):
            connection.hang_up()
            leaving.append(self._loop.create_task(connection.closed.wait()))
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=_CLOSE_S)
            for transport in self._connections.values():
                transport.abort()
            await asyncio.wait(late or leaving, timeout=_CLOSE_S)
            await asyncio.sleep(0)  # for connections that were being made
        await self._loop.shutdown_default_executor()  # which looks up names

    async def _keep_dialing(self, attached: _Attached, dial: Dial, name: str | None) -> None:
        pause_s, warned_s, since_s = _FIRST_S / 2, -_QUIET_S, time.monotonic()
        while not attached.is_over:
            at = dial() if callable(dial) else dial
            if at is None:
                await attached.rest(_FIRST_S)
                continue
            host, port = at
            pause_s = min(_MOST_S, pause_s * 2)
            try:
                connection = await self._connect(attached, host, port, name)
                await connection.closed.wait()
                since_s = time.monotonic()
                if connection.has_heard:
                    pause_s = _FIRST_S  # the other site is there: it was the link that broke
            except (OSError, TimeoutError, ssl.SSLError) as error:
                now_s = time.monotonic()
                if now_s - since_s > _GONE_S and now_s - warned_s > _QUIET_S:
                    warned_s = now_s
                    log.warning("bridge %s cannot reach %s:%d: %s", attached.bridge, host, port, _text_of(error))
            if await attached.rest(pause_s):
                pause_s = _FIRST_S / 2

    async def _connect(self, attached: _Attached, host: str, port: int, name: str | None) -> _Connection:
        async with asyncio.timeout(_GREET_S):
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self, attached),
                host,
                port,
                ssl=self._client_tls,
                server_hostname=None if self._client_tls is None else name or host,
            )
        return connection

    def pump(self) -> bool:
        """Send what the uplink takes, the most important first; say whether there is an uplink to be heeded at all."""
        meter = self._meter
        if meter is None:
            return False
        while (wait_s := meter.wait_s(time.monotonic())) == 0.0:
            senders = [each for each in self._ends.values() if each.end.machine.role == "sender"]
            senders.sort(key=lambda each: each.end.priority, reverse=True)
            size = next((size for each in senders if (size := each.send(meter.most_bytes))), 0)
            if not size:
                return True
            meter.sent(size, time.monotonic())
        if self._pumping is None:
            self._pumping = self._loop.call_later(wait_s, self._pump_again)
        return True

    def _pump_again(self) -> None:
        self._pumping = None
        self.pump()

    def find(self, hello: Hello, names: Collection[str] | None) -> _Attached | None:
        """Return the end that somebody who calls wants to talk to, by `names` that are in its certificate if it has one."""
        attached = self._end_for(hello)
        return attached if attached is None or names is None or attached.name in (None, *names) else None

    def note_unheard(self, message: Message, names: Collection[str] | None) -> None:
        """Warn, now and then, of who has called an end that is here, and for somebody else."""
        end = self._end_for(message) if isinstance(message, Hello) else None
        if end is not None and time.monotonic() - end.warned_s > _QUIET_S:
            end.warned_s = time.monotonic()
            who = ", ".join(names or ()) or "somebody"
            log.warning("bridge %s: %s has called, and is not heard: it is for %s", end.bridge, who, end.name)

    def _end_for(self, hello: Hello) -> _Attached | None:
        return self._ends.get((hello.bridge, "receiver" if hello.role == "sender" else "sender"))


class _Attached:
    """An end and the connection that it has, if any; the last one counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: End, name: str | None) -> None:
        self._loop, self.end, self.name = loop, end, name
        self.bridge: str = end.machine.bridge
        self.connection: _Connection | None = None
        self.task: asyncio.Task[None] | None = None
        self.warned_s = -_QUIET_S  #: when it was last told that somebody else has called
        self.is_over = False
        self.hurried = asyncio.Event()  #: the other site may be elsewhere, or there again
        self._woken = False
        end.wake = self._wake

    async def rest(self, seconds: float) -> bool:
        """Wait before the next attempt; say whether that was cut short."""
        try:
            async with asyncio.timeout(seconds):
                await self.hurried.wait()
        except TimeoutError:
            return False
        self.hurried.clear()
        return True

    def _wake(self) -> None:
        """Have the loop look whether there is something to say; for any thread, and cheap when it was called before."""
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody is to be told any more
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._woken = False
        if self.connection is not None:
            self.connection.push()

    def send(self, most_bytes: int | None) -> int:
        """Send what comes next, about so many bytes; return how many it was."""
        return 0 if self.connection is None else self.connection.send_next(most_bytes)

    def refuse(self, why: str) -> None:
        """Take note that the two ends can never agree."""
        self.is_over = True
        log.error("bridge %s: %s", self.bridge, why)
        refuse = getattr(self.end, "refuse", None)
        if refuse is not None:
            refuse(why)


class _Connection(asyncio.Protocol):
    """One connection, from either side: finds out which end it belongs to, then carries its messages."""

    def __init__(self, links: Links, attached: _Attached | None) -> None:
        self._links, self._attached = links, attached
        self._parser = Parser(_FIRST_BYTES if attached is None else MOST_BYTES)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._unheard: list[Message] = []  #: said before the end was there that is meant
        self._names: list[str] | None = None  #: in the certificate of who has called, where one is shown
        self.has_heard = False  #: whether the other end has said anything
        self._timer: asyncio.TimerHandle | None = None
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, if it is known who is called; give up on those who do not say who they are."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_BYTES)
        self._links._connections[self] = transport
        if self.leave_if_revoked():
            return
        if self._attached is not None:
            self._begin(self._attached)
        else:
            certificate = transport.get_extra_info("peercert")
            self._names = None if certificate is None else _names(certificate)
            self._timer = self._links._loop.call_later(_GREET_S, self.hang_up)

    def _begin(self, attached: _Attached) -> None:
        before = attached.connection
        self._parser.most_bytes = MOST_BYTES
        self._attached, attached.connection = attached, self
        if before is not None and before is not self:
            before.hang_up()  # the other side calls anew: the old connection is dead, though it may not look so
        self._say(attached.end.connected(time.monotonic()))
        self._schedule()

    def data_received(self, data: bytes) -> None:
        """Take messages; a connection over which nonsense comes is closed."""
        self.has_heard = True
        if self._transport is None:
            return
        try:
            for message in self._parser.feed(data):
                if not (self._introduced(message) if self._attached is None else self._hear(message)):
                    return
        except (InputError, ValueError) as error:
            log.warning("a bridge connection is closed: %s", error)
            self.hang_up()
            return
        self.push()

    def _introduced(self, message: Message) -> bool:
        """Find the end that is meant; return whether more may follow. One that is not there is waited for a while."""
        if len(self._unheard) >= _UNHEARD or not (self._unheard or isinstance(message, Hello)):
            self.hang_up()
            return False
        self._unheard.append(message)
        return self.meet_late()

    def meet_late(self) -> bool:
        """Begin with the end that somebody has called, if it is there by now; return whether more may follow."""
        first = self._unheard[0] if self._unheard else None
        if not isinstance(first, Hello) or self._transport is None:
            return True
        attached = self._links.find(first, self._names)
        if attached is None:
            return True
        if self._timer is not None:
            self._timer.cancel()
        messages, self._unheard = self._unheard, []
        self._begin(attached)
        return all(self._hear(message) for message in messages)

    def _hear(self, message: Message) -> bool:
        """Take a message; return whether more may follow."""
        assert self._attached is not None
        if self._attached.connection is not self:
            self.hang_up()
            return False
        try:
            self._say(self._attached.end.heard(message, time.monotonic()))
            return True
        except RefusedError as error:
            if not isinstance(message, Refuse):
                self._say([Refuse(str(error))])
            self._attached.refuse(str(error))
            self.hang_up()
            return False

    def push(self) -> None:
        """Say what there is to say, as long as the network takes it."""
        while self._transport is not None and not self._paused and self._attached is not None:
            if self._attached.connection is not self:
                return
            if self._attached.end.machine.role == "sender" and self._links.pump():
                return
            if not self.send_next(None):
                return

    def send_next(self, most_bytes: int | None) -> int:
        """Say what comes next, if the network takes it; return how many bytes that was."""
        if self._transport is None or self._paused or self._attached is None:
            return 0
        return self._say(self._attached.end.next(most_bytes))

    def _say(self, messages: list[Message]) -> int:
        if not messages or self._transport is None:
            return 0
        data = b"".join(piece for message in messages for piece in encoded(message))
        self._transport.write(data)
        if self._attached is not None:
            self._attached.end.machine.note_sent(time.monotonic())
        return len(data)

    def pause_writing(self) -> None:
        """Wait: the network does not take more."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self.push()

    def _schedule(self) -> None:
        self._timer = self._links._loop.call_later(PING_S / 2, self._tick)

    def _tick(self) -> None:
        if self._transport is None or self._attached is None:
            return
        messages = self._attached.end.machine.tick(time.monotonic())
        if messages is None:
            log.warning("bridge %s: nobody answers; the connection is made anew", self._attached.bridge)
            self._transport.abort()
            return
        self._say(messages)
        self.push()
        self._schedule()

    def hang_up(self) -> None:
        """Close the connection once all is sent."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def leave_if_revoked(self) -> bool:
        """Hang up at once if the other's certificate is revoked; say whether it is."""
        if self._transport is None or not self._links.is_revoked(self._transport.get_extra_info("peercert")):
            return False
        self._transport.abort()
        self._transport = None
        return True

    def connection_lost(self, why: Exception | None) -> None:
        """Take note that it is gone."""
        self._transport = None
        self._links._connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._attached is not None and self._attached.connection is self:
            self._attached.connection = None
        if self._unheard:
            self._links.note_unheard(self._unheard[0], self._names)
        self.closed.set()


def _names(certificate: Mapping[str, Any] | None) -> list[str]:
    """Return the names of sites in a certificate."""
    return [name for _, name in (certificate or {}).get("subjectAltName", ())]


def _text_of(error: BaseException) -> str:
    return str(error) or type(error).__name__
