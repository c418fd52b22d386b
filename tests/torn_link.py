"""A proxy on loopback that a test cuts, delays and tears."""

import asyncio
import random
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes on to a port; `closed` refuses new connections. With a seed, each is torn after some bytes, by chance."""

    def __init__(self, port, seed=None, every_bytes=2**19):
        self._to, self._random, self._every = port, None if seed is None else random.Random(seed), every_bytes
        self.cuts = 0
        self.closed = False
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def _call(self, what):
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _serve(self, reader, writer):
        if self.closed:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back}
        self._writers |= both
        left = [2**62 if self._random is None else self._every // 2 + self._random.randrange(self._every)]
        await asyncio.gather(self._pass(reader, back, both, left), self._pass(there, writer, both, left))
        self._writers -= both

    async def _pass(self, reader, writer, both, left):
        with suppress(OSError):
            while data := await reader.read(2**16):
                if self._random is not None and self._random.random() < 0.05:
                    await asyncio.sleep(self._random.random() * 0.02)
                writer.write(data[: left[0]])
                await writer.drain()
                left[0] -= len(data)
                if left[0] <= 0:
                    self.cuts += 1
                    for each in both:
                        each.transport.abort()
                    return
        with suppress(OSError, RuntimeError):
            writer.close()

    def close(self):
        async def end():
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.sleep(0.05)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
