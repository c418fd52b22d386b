"""The line from a site to the coordinator: while the site is at something that takes long, and what is told of it."""

import asyncio
import threading
from itertools import pairwise
from types import SimpleNamespace

from headwater.deploy.control.messages import Ping, Report
from headwater.deploy.site import link
from headwater.deploy.site.link import Link
from waiting import PATIENCE_S

REPORT = Report([], 0.0, 0.0, 0)


class Work:
    """Is at work until it may end."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    def told(self, message):
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        return [message]

    def report(self, heard):
        return REPORT


class Wire:
    """Hears nothing."""

    def __init__(self):
        self.heard_s, self.said, self.was_cut = 0.0, [], False

    def say(self, message):
        self.said.append(message)

    def cut(self):
        self.was_cut = True


def test_a_site_that_is_at_work_does_not_take_the_coordinator_for_gone_which_it_does_not_listen_to(monkeypatch):
    monkeypatch.setattr(link, "BEAT_S", 0.001)
    work, wire = Work(), Wire()

    async def talked():
        line, loop = Link(work, ("127.0.0.1", 1)), asyncio.get_running_loop()
        hearing = asyncio.create_task(line._hear(wire, Ping()))
        await loop.run_in_executor(None, work.begun.wait, 60)
        beat = asyncio.create_task(line._beat(wire, asyncio.Event()))
        async with asyncio.timeout(60):
            while len(wire.said) < 20:
                await asyncio.sleep(0.001)
            assert not wire.was_cut
            work.may_end.set()
            await hearing
            assert wire.heard_s > 0.0  # silence counts from here on
            assert not beat.done()
            wire.heard_s = 0.0
            await beat
        assert wire.was_cut
        assert [said for said in wire.said if said != REPORT] == [Ping()]

    asyncio.run(talked())


def test_another_warning_is_told_at_once_and_the_same_one_ever_more_seldom(monkeypatch, caplog):
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(link, "time", SimpleNamespace(monotonic=lambda: now.s))
    line = Link(SimpleNamespace(folder=SimpleNamespace(name="barn"), has_parts=True), ("127.0.0.1", 1))

    def told(say, *words):
        caplog.clear()
        say(*words)
        return [record.getMessage().partition("1: ")[2] for record in caplog.records]

    assert told(line._warn, "the line was cut") == ["the line was cut"]
    refused = ["it does not admit this site: its certificate is revoked"]
    assert told(line._refuse, "its certificate is revoked") == refused  # a moment after the line was cut for that
    for _ in range(5):
        now.s += 5.0
        assert told(line._refuse, "its certificate is revoked") == []
        assert told(line._warn, "the line was cut") == []
    now.s += 5.1
    assert told(line._refuse, "its certificate is revoked") == refused
    again_s = []
    for second in range(24 * 3600):
        now.s += 1.0
        if told(line._refuse, "its certificate is revoked"):
            again_s.append(second)
    rests_s = [b - a for a, b in pairwise(again_s)]
    assert rests_s == sorted(rests_s)
    assert rests_s[0] < 300
    assert rests_s[-1] == 3600  # a coordinator that is away for a night is told of some times, not thousands
    assert len(again_s) < 40
    line._quiet = {}  # it has joined since
    assert told(line._refuse, "its certificate is revoked") == refused
