"""How soon the coordinator takes a site for gone that falls silent: over a real connection, by a clock that is told."""

import asyncio
import shutil
import time
from types import SimpleNamespace

import pytest

from headwater import __version__
from headwater.deploy.certificates import issued
from headwater.deploy.control import wire as wires
from headwater.deploy.control.messages import PROTOCOL, SILENT_S, Hello, Ping, Welcome
from headwater.deploy.control.wire import Wire
from headwater.deploy.coordinator import server as servers
from headwater.deploy.coordinator.events import Left
from headwater.deploy.coordinator.server import Server
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.token import COORDINATOR

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
GONE_S = 2.0  #: as docs/sites.md says


class Clock:
    """A clock on which nothing takes time but the rests of the coordinator, whose lengths it keeps."""

    def __init__(self):
        self.now_s, self.rests_s = 1000.0, []

    async def sleep(self, seconds):
        self.rests_s.append(seconds)
        for _ in range(50):  # what is under way in this loop is done
            await asyncio.sleep(0)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    told = SimpleNamespace(monotonic=lambda: made.now_s, time=time.time)
    monkeypatch.setattr(servers, "time", told)
    monkeypatch.setattr(wires, "time", told)
    monkeypatch.setattr(servers, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": made.sleep}))
    return made


@pytest.fixture
def folder(tmp_path, certificates):
    made = StateFolder(tmp_path / "state")
    shutil.copytree(certificates, made.certificates)
    return made


def silent(folder, clock, talks=0):
    """Join as the site 'barn', say so many words, and none from then on; return when it said one last, and was gone."""
    moments = {}

    class Noting(Server):
        def handle(self, event):
            if isinstance(event, Left):
                moments.setdefault("gone", clock.now_s)
            super().handle(event)

    async def joined():
        server = Noting(folder)
        try:
            await server.open("127.0.0.1", 0)
            context = issued(folder.certificates, "barn").client()
            at = await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=COORDINATOR)
            site = Wire(*at)
            site.say(Hello("barn", __version__, PROTOCOL, None, 1.0, 1))
            async with asyncio.timeout(60):
                assert isinstance(await site.hear(), Welcome)
                here = server._wires["barn"]
                for _ in range(talks):
                    said_s = clock.now_s
                    site.say(Ping())
                    while here.heard_s < said_s:
                        assert await site.hear() is not None
                moments["last"] = here.heard_s
                while await site.hear() is not None:
                    assert server.coordinator.sites["barn"].here
                while "gone" not in moments:
                    await asyncio.sleep(0)
            assert not server.coordinator.sites["barn"].here
            await site.close()
            await server.close()
        finally:
            server.release()

    asyncio.run(joined())
    return moments["last"], moments["gone"]


@pytest.mark.parametrize("talks", [0, 20], ids=["at once", "after a while"])
def test_a_site_that_vanishes_is_taken_for_gone_in_less_than_two_seconds(folder, clock, talks):
    last_s, gone_s = silent(folder, clock, talks)
    assert SILENT_S < gone_s - last_s < GONE_S
    assert SILENT_S + max(clock.rests_s) < GONE_S  # whenever in the rest of the coordinator it said its last word
