"""A way to a server on loopback that can be cut for a while: who dials then is refused, and no connection is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from headwater_bench.servers import free_port

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """Passes bytes between a port of its own and a server's, in a thread, until it is closed."""

    def __init__(self, to: int) -> None:
        self._to, self.port = to, free_port()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.mend()

    def cut(self) -> None:
        """Be away: nobody listens, and all connections are gone."""
        self._do(self._cut())

    def mend(self) -> None:
        """Be there again."""
        self._do(self._listen())

    def close(self) -> None:
        """End."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back}
        if self._server is None:  # cut meanwhile
            for each in both:
                each.transport.abort()
            return
        self._writers |= both
        await self.join((reader, writer), (there, back))
        self._writers -= both

    async def join(self, ours: Stream, theirs: Stream) -> None:
        """Pass on what comes over a connection until both ends have closed it; a link that is worse does it otherwise."""
        await asyncio.gather(_passed(ours[0], theirs[1]), _passed(theirs[0], ours[1]))


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, RuntimeError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
        writer.close()
