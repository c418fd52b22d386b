"""Ways out of namespaces: servers of this machine that those inside reach at their loopback, the coordinator above all."""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress

from headwater.deploy.bridge.links import Address
from headwater.deploy.local.namespace import Namespace
from headwater.errors import RunError

LOOPBACK = "127.0.0.1"
_PIECE = 2**16
_AT_ONCE = struct.pack("ii", 1, 0)  #: a socket that is closed so is reset


class Relay:
    """Passes connections on, by a thread; they are no links of the net, and take no time on the way."""

    def __init__(self, namespaces: Sequence[Namespace], servers: Sequence[Address]) -> None:
        """Have each server be reached in all namespaces, at the port that it has."""
        self._listening = [(_listening(each, port), (host, port)) for each in namespaces for host, port in servers]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._pass_on()), name="relay", daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Pass nothing on any more."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _pass_on(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            servers = [
                await asyncio.start_server(functools.partial(_met, server), sock=listening)
                for listening, server in self._listening
            ]
        finally:
            self._ready.set()
        await self._over.wait()
        for server in servers:
            server.close()


def _listening(namespace: Namespace, port: int) -> socket.socket:
    with namespace.inside():
        made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise RunError(f"sites cannot have port {port}: {error}") from None
    return made


async def _met(server: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        there, back = await asyncio.open_connection(*server)
    except OSError:  # nobody listens: whoever has called is told so, by more than an end
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        writer.transport.abort()
        return
    try:
        with suppress(asyncio.CancelledError):  # the relay is closed
            await asyncio.gather(_passed(reader, back), _passed(there, writer))
    finally:
        for each in (writer, back):
            each.transport.abort()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.close()
