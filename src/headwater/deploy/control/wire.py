"""One connection between a site and the coordinator: messages both ways, each with its length before it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from contextlib import suppress

from headwater.deploy.control.messages import Message, packed, unpacked
from headwater.deploy.revoked import shown_serial
from headwater.errors import RunError

MOST_BYTES = 2**30  #: of one message
FIRST_BYTES = 2**20  #: and of the first, by which it is said who calls
_PIECE = 2**16  #: bytes that are read, or encrypted and sent, at once: a whole long message would take seconds


class Wire:
    """Says and hears messages; `heard_s` is when something came last, be it a piece of a long message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unsaid: deque[bytes] = deque()  #: a long message that is under way, and those behind it
        self._saying: asyncio.Task[None] | None = None
        self.heard_s = time.monotonic()

    @property
    def other(self) -> str:
        """The name in the other's certificate."""
        peer = self._writer.get_extra_info("peercert") or {}
        return next((value for part in peer.get("subject", ()) for key, value in part if key == "commonName"), "")

    @property
    def serial(self) -> str:
        """The serial number of the other's certificate."""
        return shown_serial(self._writer.get_extra_info("peercert"))

    @property
    def address(self) -> str:
        """From where the other has called."""
        return str(self._writer.get_extra_info("peername", ("?",))[0])

    def say(self, message: Message) -> None:
        """Send a message, after those before it; one to somebody who is gone is lost."""
        body = packed(message)
        size = len(body).to_bytes(4, "big")
        if not self._unsaid and len(body) <= _PIECE:
            with suppress(OSError, RuntimeError):
                self._writer.write(size + body)
            return
        self._unsaid += [size, body]
        if self._saying is None or self._saying.done():
            self._saying = asyncio.create_task(self._say_all())

    async def _say_all(self) -> None:
        """Send what is long by pieces, each when there is room for it, so that the other hears something all the time."""
        try:
            while self._unsaid:
                rest = memoryview(self._unsaid[0])
                while rest:
                    if self._writer.transport.is_closing():  # what is written then is lost, and warned of each time
                        raise ConnectionResetError
                    self._writer.write(rest[:_PIECE])
                    await self._writer.drain()
                    rest = rest[_PIECE:]
                self._unsaid.popleft()
        except (OSError, RuntimeError):
            self._unsaid.clear()

    async def hear(self, most_bytes: int = MOST_BYTES) -> Message | None:
        """Wait for a message of so many bytes at most; None when the other has hung up. RunError for what is no message."""
        try:
            size = int.from_bytes(await self._exactly(4), "big")
            if size > most_bytes:
                raise RunError("what came is no message; is something else at that address?")
            return unpacked(await self._exactly(size))
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError):
            return None

    async def _exactly(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            piece = await self._reader.read(min(_PIECE, size - len(data)))
            if not piece:
                raise asyncio.IncompleteReadError(bytes(data), size)
            self.heard_s = time.monotonic()
            data += piece
        return data

    async def close(self, within_s: float = 1.0) -> None:
        """Hang up once all is said; not for ever."""
        with suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(within_s):
                if self._saying is not None:
                    await self._saying
                self._writer.close()
                await self._writer.wait_closed()
        self._writer.transport.abort()

    def cut(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()
