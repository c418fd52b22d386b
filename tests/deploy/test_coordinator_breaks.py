"""What a coordinator cannot do, whatever the error, is told once, and it goes on: with other sites, and ever more seldom."""

import asyncio
import shutil
import time
from types import SimpleNamespace

import pytest

from headwater import __version__
from headwater.deploy.control.messages import PROTOCOL, Ask, Hello, Report
from headwater.deploy.coordinator import server as servers
from headwater.deploy.coordinator.events import Heard, Joined
from headwater.deploy.coordinator.server import Server
from headwater.deploy.coordinator.state import CoordinatorState, Deployment, Move, StateFolder
from policed_tanks import at, policed, tanks

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
NET = ["barn", "cloud", "edge1", "edge2"]


@pytest.fixture
def folder(tmp_path, certificates):
    made = StateFolder(tmp_path / "state")
    shutil.copytree(certificates, made.certificates)
    return made


def deployed(**how):
    return Deployment(id="tanks-1", name="tanks", flow="tanks.py", known=NET, sites=at("cloud"), **how)


def at_work(folder, has, act, flow_of=None):
    """Have a coordinator with a deployment do something, in a loop of its own; return it."""
    folder.write(CoordinatorState(deployed=has))

    async def acted():
        server = Server(folder, flow_of)
        try:
            await act(server)
        finally:
            server.release()
        return server

    return asyncio.run(acted())


def test_a_part_that_cannot_be_made_is_told_as_one_that_is_not_taken_and_not_tried_again_and_again(folder, caplog):
    async def joined(server):
        for name in ("barn", "cloud"):
            server.handle(Joined(name, Hello(name, __version__, PROTOCOL, "127.0.0.1", 1.0, 1), "127.0.0.1"))
        for _ in range(10):
            for name in ("barn", "cloud"):
                server.handle(Heard(name, Report([], 0.0, time.time(), 10**9, 0), time.time()))

    server = at_work(folder, deployed(files={"../tanks.py": b""}), joined)
    why = "does not take its part: the coordinator cannot make it: ValueError: it has a file '../tanks.py'"
    assert why in server.coordinator.trouble()
    assert all(site.here for site in server.coordinator.sites.values())
    assert caplog.text.count("the coordinator broke for a moment") == 2  # once for each site


def test_checkpoints_that_cannot_be_cut_end_the_move_whatever_the_error_and_the_flow_goes_on_as_it_was(folder):
    move = Move(id="tanks-2", sites=at("edge1"), joined=[], listens=[], cut=True)
    has = deployed(phase="running", moving=move)

    def broken(deployed, place):
        raise ZeroDivisionError("a mistake of a flow's own")

    server = at_work(folder, has, lambda server: server._cut(server.coordinator.kept.deployed, {}), broken)
    assert server.coordinator.undone == "ZeroDivisionError: a mistake of a flow's own"
    now = server.coordinator.kept.deployed
    assert (now.moving, now.phase, now.sites) == (None, "running", at("cloud"))


def test_who_asks_for_what_breaks_has_an_answer(folder):
    def broken(deployed, place):
        raise KeyError("levels")

    answers = []

    async def asked(server):
        answers.append(await server._answer(Ask("move", steps=["means"], site="edge1")))

    at_work(folder, deployed(phase="running"), asked, broken)
    assert answers[0].why == "KeyError: 'levels'"


def test_a_policy_whose_look_breaks_is_told_once_and_looks_ever_more_seldom_until_one_is_well(
    folder, monkeypatch, caplog
):
    rests_s, is_broken = [], [True]

    async def sleep(seconds):
        rests_s.append(seconds)

    monkeypatch.setattr(servers, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))

    def flow_of(deployed, place):
        if is_broken:
            raise KeyError("levels")
        return tanks()

    async def looks(server):
        has = server.coordinator.kept.deployed
        for _ in range(10):
            await server._looking(has)
        is_broken.clear()
        await server._looking(has)

    at_work(folder, deployed(phase="running", policed=policed()), looks, flow_of)
    assert rests_s == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0, 0.5]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "the policy of flow 'tanks': KeyError: 'levels'"
    ]
