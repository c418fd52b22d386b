"""Ways out of namespaces: servers of this machine that those inside reach at their loopback, the coordinator above all."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from headwater.deploy.bridge.links import Address
from headwater.deploy.local.cuts import How
from headwater.deploy.local.namespace import Namespace
from headwater.errors import RunError

LOOPBACK = "127.0.0.1"
_PIECE = 2**16
_AT_ONCE = struct.pack("ii", 1, 0)  #: a socket that is closed so is reset


class Relay:
    """Passes connections on, by a thread; they are no links of the net, and take no time on the way."""

    def __init__(self, namespaces: Sequence[Namespace], servers: Sequence[Address]) -> None:
        """Have each server be reached in all namespaces, at the port that it has."""
        self._listening = {
            (number, server): _listening(each, server[1])
            for number, each in enumerate(namespaces)
            for server in servers
        }
        self._ways: dict[tuple[int, Address], _Way] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._pass_on()), name="relay", daemon=True)
        self._thread.start()
        self._ready.wait()

    def cut(self, ways: Mapping[tuple[int, Address], How]) -> None:
        """Pass nothing on between namespaces, by number, and servers, for some pairs; and everything for all others."""
        for which, way in self._ways.items():
            assert self._loop is not None
            self._loop.call_soon_threadsafe(way.cut, ways.get(which))

    def close(self) -> None:
        """Pass nothing on any more."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _pass_on(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._ways = {which: _Way(which[1]) for which in self._listening}
            servers = [
                await asyncio.start_server(self._ways[which].met, sock=listening)
                for which, listening in self._listening.items()
            ]
        finally:
            self._ready.set()
        await self._over.wait()
        for server in servers:
            server.close()


class _Way:
    """The way from one namespace to one server, and all connections that take it."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._how: How | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._clear = asyncio.Event()  #: something may be passed on
        self._clear.set()

    def cut(self, how: How | None) -> None:
        """Have nothing pass, or all again; what was said in silence comes then, as TCP sends it again."""
        self._how = how
        if how == "silent":
            self._clear.clear()
        else:
            self._clear.set()
        if how == "reset":
            for writer in self._open:
                _reset(writer)

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what one caller says, and what is answered."""
        self._open.add(writer)
        back: asyncio.StreamWriter | None = None
        try:
            await self._clear.wait()
            if self._how == "reset":
                _reset(writer)
                return
            there, back = await asyncio.open_connection(*self._server)
            self._open.add(back)
            await asyncio.gather(self._passed(reader, back), self._passed(there, writer))
        except asyncio.CancelledError:  # the relay is closed
            pass
        except OSError:  # nobody listens: whoever has called is told so, by more than an end
            _reset(writer)
        finally:
            for each in (writer, back):
                if each is not None:
                    each.transport.abort()
                    self._open.discard(each)

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                await self._clear.wait()
                writer.write(data)
                await writer.drain()
        await self._clear.wait()
        with suppress(OSError, RuntimeError):
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()


def _listening(namespace: Namespace, port: int) -> socket.socket:
    with namespace.inside():
        listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise RunError(f"sites cannot have port {port}: {error}") from None
    return listener
