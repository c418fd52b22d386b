"""The supervisor, for real: it holds cores for processes that live, outlives none of its promises, and is found again."""

import asyncio
import contextlib
import grp
import json
import os
import pwd
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from promised import demand
from promised import flow as burning
from promising import until
from typer.testing import CliRunner

from headwater import Contract
from headwater.cli import add_commands, app
from headwater.cli.promise import GivingWay
from headwater.errors import RateError
from headwater.flow import Flow
from headwater.rate import admission
from headwater.rate import home as home_of
from headwater.rate.admission import granted_or_refused
from headwater.rate.cgroups import Groups
from headwater.rate.client import Client, board, connected
from headwater.rate.grade import Grade, share
from headwater.rate.home import BOOK, SOCKET
from headwater.rate.messages import (
    Ask,
    Board,
    End,
    Findings,
    Granted,
    Noted,
    Refused,
    Resume,
    Settle,
    Status,
    Tell,
    line,
    request,
)
from headwater.rate.reservation import Reservation
from headwater.rate.supervisor import Supervisor, serve
from supervisors import supervisor_pid
from waiting import PATIENCE_S

CONTRACT = Contract(1000.0, 0.05)
SHARED = Grade("shared", "as everybody", "be root")
PROTECT = Grade.protect


@pytest.fixture
def supervisor(tmp_path):
    return Supervisor(tmp_path, Grade("session", "for a test"), cores=2)


@pytest.fixture(autouse=True)
def no_autogroup(monkeypatch):
    monkeypatch.setattr(Grade, "protect", lambda self, lane: None)
    monkeypatch.setattr(Grade, "weigh", lambda self, lane, above: self_weighed.append((lane.id, above)))
    self_weighed.clear()


self_weighed: list = []


def test_it_grants_settles_and_frees(supervisor):
    granted = supervisor.answer(Ask("etl", CONTRACT, 0.5), os.getpid())
    assert isinstance(granted, Granted)
    assert supervisor.answer(Settle(granted.id, 0.7), os.getpid()).cores == 0.7
    refused = supervisor.answer(Ask("more", CONTRACT, 0.8), os.getpid())
    assert isinstance(refused, Granted)
    refused = supervisor.answer(Ask("too much", CONTRACT, 0.4), os.getpid())
    assert isinstance(refused, Refused)
    assert [name for name, _ in refused.holders] == ["etl", "more"]
    supervisor.answer(End(granted.id), os.getpid())
    assert [lane.flow for lane in supervisor.board().lanes] == ["more"]


def test_a_lane_above_its_promise_weighs_less_until_it_is_within_it_again(supervisor):
    name = supervisor.answer(Ask("etl", CONTRACT, 0.5), os.getpid()).id
    for above in (False, True, True, False):
        assert supervisor.answer(Tell(name, 0.4, 3, 1, above, {}, 2), os.getpid()) == Noted(known=True)
    assert self_weighed == [(name, True), (name, False)]
    lane = supervisor.board().lanes[0]
    assert (lane.kept, lane.broken, lane.close, lane.used) == (3, 1, 2, 0.4)
    assert supervisor.answer(Tell("nobody", 0, 0, 0, False), os.getpid()) == Noted(known=False)


def test_the_next_supervisor_weighs_lanes_anew_since_it_does_not_know_who_was_above(supervisor, tmp_path):
    name = supervisor.answer(Ask("etl", CONTRACT, 0.5), os.getpid()).id
    supervisor.answer(Tell(name, 0.4, 3, 1, True), os.getpid())
    self_weighed.clear()
    again = Supervisor(tmp_path, Grade("session", "for a test"), cores=2)
    again.answer(Tell(name, 0.4, 4, 1, False), os.getpid())
    assert self_weighed == [(name, False)]


def test_others_may_look_but_not_ask_unless_their_group_may(tmp_path):
    own, stranger = os.geteuid(), 65534
    closed = Supervisor(tmp_path, Grade("session", "for a test"), cores=2)
    refused = closed.answer(Ask("theirs", CONTRACT, 0.1), os.getpid(), stranger)
    assert (refused.why, refused.left) == ("closed", 0.0)
    looked = closed.answer(Status(), os.getpid(), stranger)
    assert (looked.lanes, looked.may_ask) == ([], False)
    assert closed.answer(Status(), os.getpid(), own).may_ask
    group = grp.getgrgid(pwd.getpwuid(stranger).pw_gid).gr_name
    opened = Supervisor(tmp_path, Grade("session", "for a test"), cores=2, group=group)
    theirs = opened.answer(Ask("theirs", CONTRACT, 0.1), os.getpid(), stranger)
    ours = opened.answer(Ask("ours", CONTRACT, 0.1), os.getpid(), own)
    assert isinstance(theirs, Granted)
    assert opened.answer(End(ours.id), os.getpid(), stranger) == Noted(known=False)
    assert opened.answer(Tell(ours.id, 0, 9, 9, True), os.getpid(), stranger) == Noted(known=False)
    assert isinstance(opened.answer(Settle(ours.id, 0.8), os.getpid(), stranger), Refused)
    assert [(lane.flow, lane.cores, lane.kept) for lane in opened.board().lanes] == [
        ("theirs", 0.1, 0),
        ("ours", 0.1, 0),
    ]
    assert opened.answer(End(theirs.id), os.getpid(), own) == Noted(known=True)  # who keeps the ledger may end any


def test_doctor_tells_the_grade_that_the_supervisor_at_work_gives_and_what_would_give_a_better_one(monkeypatch):
    add_commands()

    def told():
        found = CliRunner().invoke(app, ["doctor", "--quick", "--json"])
        return next(each for each in json.loads(found.stdout)["checks"] if each["name"] == "promised rates")

    monkeypatch.setattr("headwater.rate.grade.grade_here", lambda: Grade("shared", "as everybody", "a command"))
    monkeypatch.setattr("headwater.rate.board", lambda: None)
    assert (told()["works"], told()["seen"], told()["mend"]) == (False, "grade shared: as everybody", "a command")
    served = Board(2, 1.8, 1.8, "reserved", "a group per lane", "", [])
    monkeypatch.setattr("headwater.rate.board", lambda: served)
    assert (told()["works"], told()["seen"]) == (True, "grade reserved: a group per lane")
    served.may_ask = False
    assert (told()["works"], "takes no orders from this user" in told()["seen"]) == (False, True)
    assert "headwater supervisor --group GROUP" in told()["mend"]


def test_users_find_the_supervisor_of_the_machine_and_use_their_own_only_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.delenv("HEADWATER_RUNTIME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    monkeypatch.setattr(home_of, "MACHINE", tmp_path / "machine")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert home_of.folder() == tmp_path / "user" / "headwater"
    (tmp_path / "machine").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "machine" / "supervisor.sock"))
        assert home_of.folder() == tmp_path / "user" / "headwater"  # nobody answers there
        listening.listen()
        assert home_of.folder() == tmp_path / "machine"


def test_the_command_serves_the_whole_machine_and_says_who_may_ask(home):
    if os.geteuid() != 0:
        pytest.skip("only root keeps the ledger of a machine")
    command = [sys.executable, "-m", "headwater", "supervisor", "--group", "nogroup"]
    serving = subprocess.Popen(command, env={**os.environ, "HEADWATER_RUNTIME": str(home)}, stderr=subprocess.PIPE)
    try:
        until(lambda: board(home))
        client = Client(home)
        client.say(Ask("etl", CONTRACT, 0.01, best_effort=True))
        client.close()
        assert stat.S_IMODE((home / "supervisor.sock").stat().st_mode) == 0o666
        assert stat.S_IMODE((home / "ledger.json").stat().st_mode) == 0o600
    finally:
        serving.terminate()
        serving.communicate()
    done = subprocess.run([*command[:-1], "no such"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no group 'no such'" in done.stderr


def test_a_process_that_is_gone_holds_nothing(supervisor):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert isinstance(supervisor.answer(Ask("etl", CONTRACT, 0.5), child.pid), Granted)
    child.kill()
    child.communicate()
    assert supervisor.answer(Ask("next", CONTRACT, 0.8), os.getpid()).cores == 0.8
    assert [lane.flow for lane in supervisor.board().lanes] == ["next"]
    assert isinstance(supervisor.answer(Ask("ghost", CONTRACT, 0.1), child.pid), Refused)


def test_the_next_supervisor_finds_what_is_held_and_one_without_a_book_begins_anew(supervisor, tmp_path):
    name = supervisor.answer(Ask("etl", CONTRACT, 0.5), os.getpid()).id
    again = Supervisor(tmp_path, SHARED, cores=2)
    assert [(lane.id, lane.cores) for lane in again.board().lanes] == [(name, 0.5)]
    (tmp_path / "ledger.json").write_text("[{")
    assert Supervisor(tmp_path, SHARED, cores=2).board().lanes == []


def test_groups_of_lanes_that_are_gone_are_removed_and_those_of_other_folders_are_not(tmp_path, monkeypatch):
    released = []
    monkeypatch.setattr(Grade, "release", lambda self, name: released.append(name))
    one, other = (Supervisor(tmp_path / name, SHARED, cores=2) for name in ("one", "other"))
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    ours, theirs = (each.answer(Ask("etl", CONTRACT, 0.1, best_effort=True), os.getpid()).id for each in (one, other))
    monkeypatch.setattr(Grade, "names", lambda self: [ours, theirs])
    (tmp_path / "one" / "ledger.json").unlink()
    Supervisor(tmp_path / "one", SHARED, cores=2)
    assert released == [ours]


def test_a_group_that_could_not_be_removed_at_once_is_removed_later(supervisor, monkeypatch):
    there, tries = [], []
    monkeypatch.setattr(Grade, "names", lambda self: list(there))

    def release(self, name):
        tries.append(name)
        if len(tries) > 2:  # until then threads of the lane are still on their way out
            there.clear()

    monkeypatch.setattr(Grade, "release", release)
    name = supervisor.answer(Ask("etl", CONTRACT, 0.5), os.getpid()).id
    there.append(name)
    supervisor.answer(End(name), os.getpid())
    assert tries == []  # nobody waits for the system to give a group back
    for _ in range(5):
        supervisor.look()
    assert there == []
    assert tries == [name] * 3  # and no more


def test_what_others_left_behind_and_nobody_is_in_is_removed_at_its_start_and_at_its_end(home, tmp_path, monkeypatch):
    tree = tmp_path / "cgroup"
    left = [tree / f"headwater.{name}" for name in ("of-a-killed-one", "of-a-test")]
    left[0].mkdir(parents=True)
    found = []

    async def works(supervisor, stopping, idle_s):
        found.append(left[0].exists())
        left[1].mkdir()

    monkeypatch.setattr("headwater.rate.supervisor._until_stopped", works)
    asyncio.run(serve(home, grade=Grade("reserved", "for a test", "", Groups(tree, 2))))
    assert found == [False]
    assert not left[1].exists()


def test_where_nothing_can_be_reserved_only_a_fair_share_is_promised(tmp_path, monkeypatch):
    supervisor = Supervisor(tmp_path, SHARED, cores=2)
    monkeypatch.setattr("headwater.rate.supervisor.share", lambda cores, processes: 0.4 * processes)
    small = supervisor.answer(Ask("small", CONTRACT, 0.3), os.getpid())
    assert (small.grade, small.how) == ("shared", "as everybody; beside what runs now that is about 0.40 cores")
    refused = supervisor.answer(Ask("large", CONTRACT, 0.5), os.getpid())
    assert (refused.why, refused.left) == ("unprotected", 0.4)
    assert supervisor.answer(Ask("large", CONTRACT, 0.5, best_effort=True), os.getpid()).grade == "none"
    two = supervisor.answer(Ask("two lanes", CONTRACT, 0.7, lanes=2), os.getpid())
    assert (two.grade, two.how) == ("shared", "as everybody; beside what runs now that is about 0.80 cores")


def test_several_processes_have_several_shares_but_none_more_than_a_core(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda self: "3.00 1.00 0.50 1/99 7\n")
    assert share(2, 1) == 0.5
    assert share(2, 2) == pytest.approx(0.8)
    assert share(16, 1) == 1.0
    assert share(16, 3) == 3.0


def test_a_weight_is_never_given_to_a_session_that_others_are_in(tmp_path, monkeypatch):
    monkeypatch.setattr(Grade, "protect", PROTECT)
    monkeypatch.setattr("headwater.rate.supervisor.share", lambda cores, processes: 0.05)
    supervisor = Supervisor(tmp_path, Grade("session", "for a test"), cores=2)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # in our session
    try:
        assert supervisor.answer(Ask("etl", CONTRACT, 0.1), child.pid).why == "unprotected"
        granted = supervisor.answer(Ask("etl", CONTRACT, 0.1, best_effort=True), child.pid)
        assert (granted.grade, granted.how) == (
            "none",
            f"nothing protects it: process {child.pid} has no session of its own; start it with setsid; beside what runs "
            "now that is about 0.05 cores",
        )
    finally:
        child.kill()
        child.communicate()


def test_a_supervisor_that_was_started_for_a_promise_is_its_owners_alone_and_what_is_no_message_ends_the_conversation(
    home,
):
    client = Client(home)
    assert isinstance(client.say(Ask("etl", CONTRACT, 0.01, best_effort=True)), Granted)
    assert stat.S_IMODE((home / "supervisor.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    with connected(home) as line:
        line.sendall(b'{"type":"ask","flow":7}\n')
        assert line.recv(100) == b""
    assert [lane.flow for lane in board(home).lanes] == ["etl"]  # the others are still answered
    client.close()


@pytest.mark.parametrize(
    "message", [Ask("etl", CONTRACT, -5.0), Ask("etl", CONTRACT, 0.1, lanes=-1), Settle("etl", -5.0)]
)
def test_nobody_asks_for_less_than_nothing_which_would_be_room_that_is_not_there(message):
    with pytest.raises(msgspec.ValidationError, match=">= 0"):
        request(line(message))


def test_a_machine_s_supervisor_that_takes_up_no_call_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(home_of, "MACHINE", tmp_path)
    monkeypatch.delenv("HEADWATER_RUNTIME", raising=False)
    calls = []
    with socket.socket(socket.AF_UNIX) as stopped, contextlib.ExitStack() as last:
        stopped.bind(str(tmp_path / "supervisor.sock"))
        stopped.listen(1)
        while not calls or calls[-1].connect_ex(str(tmp_path / "supervisor.sock")) == 0:
            calls.append(last.enter_context(socket.socket(socket.AF_UNIX)))
            calls[-1].setblocking(False)
        found = []
        looks = threading.Thread(target=lambda: found.append(home_of.folder()), daemon=True)
        looks.start()
        looks.join(PATIENCE_S)
        assert found == [tmp_path]
        with pytest.raises(RateError, match="it is stopped, or hangs"):
            board(tmp_path)


def test_one_that_is_stopped_is_told_as_that_and_waited_for_by_nobody(home, monkeypatch):
    client, gave_way = Client(home), []
    client.say(Status())
    client.close()
    monkeypatch.setattr("headwater.rate.client._ANSWER_S", 3600.0)
    monkeypatch.setattr("headwater.rate.grade.run_idle", lambda pids, *, idle: gave_way.append(idle))
    monkeypatch.setenv("HEADWATER_RUNTIME", str(home))
    pid = supervisor_pid(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(RateError, match=rf"process {pid}\) is stopped.*'kill -CONT {pid}'"):
            board(home)
        command = [sys.executable, "-m", "headwater", "status", "--json"]
        shown = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
        GivingWay().begin()  # as a flow does that is promised nothing, and runs all the same
    finally:
        os.kill(pid, signal.SIGCONT)
    assert gave_way == [True]
    assert shown.returncode == 1
    said = json.loads(shown.stdout)
    assert (said["supervisor"], said["servers"]) == (False, [])
    assert "is stopped" in said["error"]
    assert "is stopped" in shown.stderr
    assert board(home).lanes == []  # and goes on as if nothing had been


def test_a_ledger_that_cannot_be_written_promises_nothing_and_says_why(tmp_path, caplog):
    supervisor = Supervisor(tmp_path, Grade("shared", "for a test"), cores=2)
    held = supervisor.answer(Ask("etl", CONTRACT, 0.01, best_effort=True), os.getpid())
    full = tmp_path / f".{BOOK}.new"
    full.symlink_to("/dev/full")
    refused = supervisor.answer(Ask("stats", CONTRACT, 0.01, best_effort=True), os.getpid())
    assert (refused.why, "No space left on device" in refused.said) == ("unwritten", True)
    assert [lane.flow for lane in supervisor.board().lanes] == ["etl"]
    assert supervisor.answer(End(held.id), os.getpid()) == Noted(known=True)  # which needs no room to be true
    assert supervisor.board().lanes == []
    assert "which is tried again" in caplog.text
    full.unlink()
    supervisor.look()
    assert (tmp_path / BOOK).read_text() == "[]"


def test_who_asks_is_told_that_the_ledger_cannot_be_written(home):
    client = Client(home)
    client.say(Status())
    (home / f".{BOOK}.new").symlink_to("/dev/full")
    asked = Reservation("", CONTRACT, demand(0.01).demand, 0.01, None, 0.01, "", "")
    with pytest.raises(RateError, match=r"the ledger of this machine cannot be written: .*No space left"):
        granted_or_refused(client, Flow("etl"), asked, best_effort=True)
    client.close()


def test_a_look_starts_none_where_the_one_that_took_the_call_goes_home(tmp_path, monkeypatch):
    def started(*_):
        raise AssertionError("a look has started a supervisor")

    def go_home():
        with listening, listening.accept()[0]:
            (tmp_path / SOCKET).unlink()

    monkeypatch.setattr("headwater.rate.client.started", started)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(tmp_path / SOCKET))
    listening.listen()
    thread = threading.Thread(target=go_home)
    thread.start()
    assert board(tmp_path) is None
    thread.join()
    assert board(tmp_path) is None  # nor where there was none from the beginning


def test_there_is_one_for_each_folder(home):
    client = Client(home)
    client.say(Ask("etl", CONTRACT, 0.01, best_effort=True))
    with pytest.raises(RateError, match="runs already"):
        asyncio.run(serve(home))
    client.close()


@pytest.mark.parametrize("profiled", [False, True])
def test_what_a_refusal_offers_fits_when_that_is_asked_for_also_where_the_flow_is_measured_once_more(
    supervisor, monkeypatch, profiled
):
    class Line:
        def say(self, message):
            return supervisor.answer(message, os.getpid())

    monkeypatch.setattr(admission, "most_lanes", lambda flow: 1)

    def ask(hz, found):
        monkeypatch.setattr(admission, "demanding", lambda *given, **options: demand(found))
        own = demand(1.6) if profiled else None
        return admission.admit(burning(hz, 0), Contract(hz, 0.05), Line(), profile=own, trial_s=0)

    with pytest.raises(RateError, match="what would fit") as refused:
        ask(1000.0, 1.6)
    offered = float(re.search(r"what would fit: (\d+)/s", str(refused.value))[1])
    assert offered >= (490 if profiled else 400)
    assert ask(offered, 1.6 * 1.15).cores <= 0.8


def test_a_killed_flow_frees_its_cores(home, lane):
    running = lane(1000, 10, 0.3, 60).started()
    assert [each.pid for each in board(home).lanes] == [running.process.pid]
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    assert until(lambda: not board(home).lanes)
    assert board(home).left == board(home).capacity


def test_a_killed_supervisor_is_started_again_and_finds_its_lanes(home, lane):
    running = lane(1000, 10, 0.3, 6).started()
    held = until(lambda: [each for each in board(home).lanes if each.kept])
    before = supervisor_pid(home)
    os.kill(before, signal.SIGKILL)
    after = until(lambda: board(home))
    assert supervisor_pid(home) != before
    assert [(each.id, each.cores) for each in after.lanes] == [(each.id, each.cores) for each in held]
    until(lambda: [each for each in board(home).lanes if each.kept])  # and it is told how they fare
    assert running.report()["windows"] > 0
    assert board(home).lanes == []


@pytest.fixture
def sleeping():
    """Starts processes that do nothing, and ends them."""
    started = []

    def make():
        started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return started[-1]

    yield make
    for each in started:
        each.kill()
        each.communicate()


def gone(child):
    child.kill()
    child.communicate()


FOUND = Findings(demand(0.5).demand, 0.5, 0.4)


def test_the_cores_of_a_lane_that_died_are_held_for_the_next_one_of_its_keeper(supervisor, tmp_path, sleeping):
    lane, keeper, next_one = sleeping(), sleeping(), sleeping()
    held = supervisor.answer(Ask("etl", CONTRACT, 0.5, keeper=keeper.pid, found=FOUND), lane.pid)
    supervisor.answer(Tell(held.id, 0.4, 3, 1, False, {"why": 1}), lane.pid)
    assert supervisor.answer(Resume(keeper.pid), next_one.pid) == Noted(known=False)  # while it lives
    gone(lane)
    assert [(each.down, each.cores) for each in supervisor.board().lanes] == [(True, 0.5)]
    again = Supervisor(tmp_path, Grade("session", "for a test"), cores=2)  # finds it in the book
    assert [each.down for each in again.board().lanes] == [True]
    resumed = supervisor.answer(Resume(keeper.pid), next_one.pid)
    assert (resumed.granted.id, resumed.granted.cores, resumed.found) == (held.id, 0.5, FOUND)
    assert (resumed.last.kept, resumed.last.causes) == (3, {"why": 1})
    assert [(each.pid, each.restarts, each.down) for each in supervisor.board().lanes] == [(next_one.pid, 1, False)]
    gone(next_one)
    gone(keeper)
    assert supervisor.answer(Status(), os.getpid()).lanes == []


def test_nobody_takes_over_what_another_keeper_keeps(supervisor, sleeping):
    lane, keeper, other = sleeping(), sleeping(), sleeping()
    supervisor.answer(Ask("etl", CONTRACT, 0.5, keeper=keeper.pid, found=FOUND), lane.pid)
    gone(lane)
    assert supervisor.answer(Resume(other.pid), other.pid) == Noted(known=False)
    assert supervisor.answer(Resume(keeper.pid), other.pid, 65534) == Noted(known=False)


def test_cores_are_not_held_for_a_keeper_of_another_user(tmp_path, sleeping):
    if os.geteuid() != 0:
        pytest.skip("only root can be asked by somebody else")
    group = grp.getgrgid(pwd.getpwuid(65534).pw_gid).gr_name
    opened = Supervisor(tmp_path, Grade("session", "for a test"), cores=2, group=group)
    lane = sleeping()
    opened.answer(Ask("theirs", CONTRACT, 0.5, keeper=1, found=FOUND), lane.pid, 65534)
    gone(lane)
    assert opened.answer(Status(), os.getpid()).lanes == []
