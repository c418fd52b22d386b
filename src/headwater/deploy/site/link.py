"""The line from a site to the coordinator: dialed, kept, and dialed anew; the site goes on by itself meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import threading
import time
from contextlib import suppress

from headwater.deploy.bridge.links import Address
from headwater.deploy.certificates import tls_name
from headwater.deploy.control.messages import BEAT_S, SILENT_S, Message, Ping, Refuse, Want, Welcome
from headwater.deploy.control.wire import Wire
from headwater.deploy.site.work import Work
from headwater.deploy.token import COORDINATOR
from headwater.errors import RunError

log = logging.getLogger("headwater.site")

_FIRST_S, _MOST_S = 0.1, 5.0  #: between two attempts to connect
_GREET_S = 5.0
_QUIET_S, _QUIETEST_S = 30.0, 3600.0  #: between two warnings that say the same: twice as long each time, up to this


class Link:
    """Keeps a site in touch with the coordinator, by a thread of its own."""

    def __init__(self, work: Work, join: Address) -> None:
        self._work, self._join = work, join
        self.refused: str | None = None  #: why the coordinator does not admit the site, which has nothing else to do
        #: until when each warning is not given again, and for how long that is
        self._quiet: dict[str, tuple[float, float]] = {}
        self._pause_s = _FIRST_S
        self._is_at_work = False  #: at what the coordinator has asked for: nobody listens to it meanwhile
        self._heard = 0  #: the last word about what should run that is done, of this connection
        self._thread = threading.Thread(target=lambda: asyncio.run(self._kept()), name="link", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Dial."""
        self._thread.start()

    def stop(self) -> None:
        """Hang up: the site ends, and nobody is to be told how it fares any more."""
        if self._loop is not None and self._keeping is not None:
            with suppress(RuntimeError):  # it is over already
                self._loop.call_soon_threadsafe(self._keeping.cancel)
            self._thread.join(_GREET_S)

    async def _kept(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._keeping = asyncio.create_task(self._keep())
        with suppress(asyncio.CancelledError):
            await self._keeping

    async def _keep(self) -> None:
        while self.refused is None:
            try:
                await self._talk()
            except (OSError, TimeoutError, ssl.SSLError, RunError) as error:
                self._warn(_told(error))
            await asyncio.sleep(self._pause_s * (0.5 + random.random()))
            self._pause_s = min(_MOST_S, self._pause_s * 2)

    async def _talk(self) -> None:
        host, port = self._join
        async with asyncio.timeout(_GREET_S):
            context = self._work.folder.identity().client()
            opened = await asyncio.open_connection(host, port, ssl=context, server_hostname=tls_name(COORDINATOR))
        wire, self._heard = Wire(*opened), 0
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        self._work.on_change(lambda: _set(loop, news))
        try:
            wire.say(self._work.hello())
            async with asyncio.timeout(_GREET_S):
                answer = await wire.hear()
            if isinstance(answer, Refuse):
                self._refuse(answer.why)
                return
            if not isinstance(answer, Welcome):
                raise RunError("the coordinator hung up; does it know this site's certificate?")
            log.info("%s: joined the coordinator at %s:%d", self._work.folder.name, host, port)
            self._pause_s, self._quiet = _FIRST_S, {}
            beat = asyncio.create_task(self._beat(wire, news))
            beat.add_done_callback(lambda task: _end(task, wire))
            try:
                while (message := await wire.hear()) is not None:
                    if not isinstance(message, Ping):
                        await self._hear(wire, message)
            finally:
                beat.cancel()
            self._warn("the line was cut; the parts go on")
        finally:
            await wire.close()

    async def _hear(self, wire: Wire, message: Message) -> None:
        """Do what is asked for, apart: it may take a while, and nobody should think that the site is gone."""
        loop, self._is_at_work = asyncio.get_running_loop(), True
        try:
            for answer in await loop.run_in_executor(None, self._work.told, message):
                wire.say(answer)
        finally:
            self._is_at_work, wire.heard_s = False, time.monotonic()
        if isinstance(message, Want):
            self._heard = message.word
        wire.say(await loop.run_in_executor(None, self._work.report, self._heard))

    async def _beat(self, wire: Wire, news: asyncio.Event) -> None:
        """Say how the site fares: now and then, and whenever a part is not what it was."""
        loop = asyncio.get_running_loop()
        while True:
            news.clear()
            word = self._heard  # before it is looked at how things are
            wire.say(await loop.run_in_executor(None, self._work.report, word))
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await news.wait()
            if not self._is_at_work and time.monotonic() - wire.heard_s > SILENT_S:
                wire.cut()
                return

    def _refuse(self, why: str) -> None:
        """Give up where the site has nothing else to do; one that has parts goes on with them, and asks again."""
        if not self._work.has_parts:
            self.refused = why
        self._pause_s = _MOST_S
        self._warn(f"it does not admit this site: {why}")

    def _warn(self, what: str) -> None:
        now_s = time.monotonic()
        until_s, rest_s = self._quiet.get(what, (now_s, _QUIET_S / 2))
        if now_s >= until_s:
            rest_s = min(2 * rest_s, _QUIETEST_S)
            self._quiet = {text: each for text, each in self._quiet.items() if now_s < each[0] + _QUIETEST_S}
            self._quiet[what] = now_s + rest_s, rest_s
            host, port = self._join
            log.warning("%s: the coordinator at %s:%d: %s", self._work.folder.name, host, port, what)


def _set(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed: the site ends
        loop.call_soon_threadsafe(news.set)


def _end(beat: asyncio.Task[None], wire: Wire) -> None:
    """Hang up when reports have broken off; that is a bug of ours, and the next connection may do better."""
    if not beat.cancelled() and (error := beat.exception()) is not None:
        log.error("reports broke off", exc_info=error)
        wire.cut()


def _told(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is none of this site's authority ({error.verify_message})"
        return f"{why}; is the token of this coordinator?"
    if isinstance(error, ssl.SSLError):
        return f"it does not take this site's certificate ({error.reason}); is the token of this coordinator?"
    return str(error) or type(error).__name__
