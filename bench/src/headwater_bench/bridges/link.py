"""A link on loopback that can be cut: while it is, whoever calls is turned away, and what was on its way is gone."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any


class Link:
    """Passes bytes on to a port of this machine, by a thread of its own."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._met, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Cut it."""
        self._is_cut = True
        self._call(self._abort())

    def mend(self) -> None:
        """Let all through again."""
        self._is_cut = False

    def close(self) -> None:
        """Leave."""
        self._server.close()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _abort(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()
        while self._open:
            await asyncio.sleep(0.01)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._open.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            there, other = await asyncio.open_connection("127.0.0.1", self._to)
            self._open.add(other)
            if not self._is_cut:
                await asyncio.gather(self._pass(reader, other), self._pass(there, writer))
        except OSError:
            pass
        finally:
            for each in (writer, other):
                if each is not None:
                    each.transport.abort()
                    self._open.discard(each)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(2**17):
                writer.write(data)
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()
