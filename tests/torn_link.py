"""A link on loopback that delays what it passes on and tears connections, by chance."""

import asyncio
import random
from contextlib import suppress

from headwater_bench.servers.link import Link


class TornLink(Link):
    """A link; with a seed, it holds up some of what it passes on and tears each connection after so many bytes or more."""

    def __init__(self, to, seed=None, every_bytes=2**19):
        self._random, self._every = None if seed is None else random.Random(seed), every_bytes
        self.cuts = 0
        super().__init__(to)

    async def join(self, ours, theirs):
        chance = self._random
        if chance is None:
            await super().join(ours, theirs)
            return
        left = self._every // 2 + chance.randrange(self._every)

        async def passed(reader, writer):
            nonlocal left
            with suppress(OSError, RuntimeError):
                while data := await reader.read(2**16):
                    if chance.random() < 0.05:
                        await asyncio.sleep(chance.random() * 0.02)
                    writer.write(data[: max(left, 0)])
                    await writer.drain()
                    left -= len(data)
                    if left <= 0:
                        self.cuts += 1
                        for _, each in (ours, theirs):
                            each.transport.abort()
                        return
                writer.close()

        await asyncio.gather(passed(ours[0], theirs[1]), passed(theirs[0], ours[1]))
