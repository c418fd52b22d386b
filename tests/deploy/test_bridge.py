"""A bridge over TCP: the real ends, encrypted, through a link that cuts and tears, and processes that are killed."""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headwater import Flow, Tumbling, agg, col, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.deploy import Cut
from headwater.deploy.bridge.inlet import Inlet
from headwater.deploy.bridge.links import Links
from headwater.deploy.bridge.messages import _HEAD
from headwater.deploy.bridge.outlet import Outlet
from headwater.deploy.bridge.room import Room
from headwater.deploy.certificates import Identity, issue, serial_of
from headwater.errors import InputError, RunError
from ports import free_port
from properties import share_of
from torn_link import TornLink
from waiting import PATIENCE_S

ROWS = [{"n": n, "key": f"k{n % 7}", "at": n * 10_000} for n in range(40_000)]
SCHEMA = {"n": int, "key": str, "at": "time"}


@pytest.fixture
def cloud(certificates):
    identity = Identity.of(certificates, "cloud")
    links = Links(("127.0.0.1", 0), server=identity.server(), client=identity.client())
    yield links
    links.close()


@pytest.fixture
def barn(certificates):
    identity = Identity.of(certificates, "barn")
    links = Links(client=identity.client(), server=identity.server())
    yield links
    links.close()


@pytest.fixture
def torn():
    """Put a link before a port; all are closed when the test is over, however it ends."""
    made = []

    def before(port, **options):
        made.append(TornLink(port, **options))
        return made[-1]

    yield before
    for link in made:
        link.close()


class Ends:
    """Barn dials cloud, whoever sends."""

    def __init__(self, barn, cloud, port):
        self.links, self.port = {"barn": barn, "cloud": cloud}, port

    def _dial(self, site):
        return {"dial": ("127.0.0.1", self.port), "peer": "cloud"} if site == "barn" else {}

    def outlet(self, crossings):
        (crossing,) = crossings
        return Outlet(str(crossing), self.links[crossing.origin], **self._dial(crossing.origin))

    def inlet(self, crossing):
        return Inlet(str(crossing), crossing.schema, self.links[crossing.target], **self._dial(crossing.target))


def there_and_back(rows, out):
    flow = Flow("there")
    read = flow.read("r", io.Items(rows, SCHEMA)).event_time("t", "at")
    counted = read.key_by("key").window("w", Tumbling("10 s"), n=agg.count())
    counted.filter("f", col.n > 0).write("out", out)
    return flow, {"r": "barn", "t": "barn", "w": "cloud", "f": "barn", "out": "barn"}


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_flow_over_two_sites_gives_what_one_engine_gives_however_often_the_link_is_cut(cloud, barn, torn, seed):
    expected, got = io.Collect(), io.Collect()
    engine.run(there_and_back(ROWS, expected)[0])
    flow, sites = there_and_back(ROWS, got)
    cut = Cut(flow, sites)
    link = torn(cloud.port, seed=seed)
    ends = Ends(barn, cloud, link.port)
    runs = [engine.start(cut.part(site, ends), chunk=20) for site in cut.sites]
    reports = [run.wait(PATIENCE_S) for run in runs]
    assert seed is None or link.cuts > 1
    assert all(report.left == 0 for report in reports)
    assert sorted(map(str, got.records)) == sorted(map(str, expected.records))


def test_records_wait_while_the_link_is_down_and_sources_are_held_at_the_bound(cloud, barn, torn):
    link, out = torn(cloud.port), io.Collect()
    link.cut()
    rows = [{"n": n, "key": "k", "at": n} for n in range(60_000)]
    flow, sent = Flow("held"), Flow("held")
    outlet = Outlet("b", barn, ("127.0.0.1", link.port), peer="cloud", room=Room(nbytes=300_000))
    sent.read("r", io.Items(rows, SCHEMA)).write("w", outlet)
    flow.read("r", Inlet("b", sent.steps["r"].outputs["out"], cloud)).write("w", out)
    receiver, sender = engine.start(flow), engine.start(sent, queue_records=1000, chunk=100)
    before, until = -1, time.monotonic() + PATIENCE_S
    while (read := sender.sample().records_in) != before or (read <= 1000 and time.monotonic() < until):
        before = read  # until it stands still
        time.sleep(0.5)
    assert 1000 < read < 30_000
    assert not out.records
    link.mend()
    assert sender.wait(PATIENCE_S).left == 0
    assert receiver.wait(PATIENCE_S).left == 0
    assert [row["n"] for row in out.records] == list(range(60_000))


@pytest.mark.parametrize("full", ["drop oldest", "drop lowest"])
@pytest.mark.parametrize("kept", ["in memory", "in a folder", "with checkpoints"])
def test_at_the_bound_what_is_oldest_is_dropped_and_counted_and_no_source_is_held(
    cloud, barn, torn, tmp_path, full, kept
):
    link, out = torn(cloud.port), io.Collect()
    link.cut()
    rows = [{"n": n, "key": f"{n:050d}", "at": n} for n in range(60_000)]
    flow, sent = Flow("shed"), Flow("shed")
    folder = tmp_path / "log" if kept == "in a folder" else None
    room = Room(nbytes=1_000_000, full=full)
    outlet = Outlet("b", barn, ("127.0.0.1", link.port), peer="cloud", room=room, folder=folder, linger_s=60)
    sent.read("r", io.Items(rows, SCHEMA)).write("w", outlet)
    flow.read("r", Inlet("b", sent.steps["r"].outputs["out"], cloud)).write("w", out)
    how = {"checkpoint": tmp_path / "checkpoint", "every": "50 ms"} if kept == "with checkpoints" else {}
    receiver, sender = engine.start(flow), engine.start(sent, queue_records=1000, chunk=100, **how)
    assert sender.done.wait(PATIENCE_S)  # all were read, though nobody takes anything
    assert sender.sample().records_in == 60_000
    link.mend()
    report = sender.wait(PATIENCE_S)
    assert receiver.wait(PATIENCE_S).left == 0
    dropped, came = report.extra["sinks"]["w"]["dropped"], [row["n"] for row in out.records]
    assert 0 < dropped == 60_000 - len(came)
    assert came == list(range(dropped, 60_000))


def test_a_name_that_is_no_sites_is_refused(tmp_path):
    with pytest.raises(RunError, match="a site's name has no '/'"):
        issue(tmp_path, "../barn")
    with pytest.raises(RunError, match=r"site 'barn' has no barn\.crt in"):
        Identity.of(tmp_path, "barn")


def test_a_site_without_the_right_certificate_is_not_let_in(cloud, tmp_path):
    issue(tmp_path, "barn")  # of another authority
    stranger = Links(client=Identity.of(tmp_path, "barn").client())
    flow = Flow("stranger")
    outlet = Outlet("b", stranger, ("127.0.0.1", cloud.port), peer="cloud", linger_s=0.5)
    flow.read("r", io.Items(ROWS[:10], SCHEMA)).write("w", outlet)
    with pytest.raises(RunError, match=r"the other site did not take all within 0\.5 s"):
        engine.run(flow)
    stranger.close()


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_site_that_is_admitted_is_not_heard_at_a_bridge_of_others(certificates, cloud, barn, caplog, role):
    issue(certificates, "shed")  # of the same authority, and neither end of the bridge
    identity = Identity.of(certificates, "shed")
    shed, schema = Links(client=identity.client()), Schema.of(SCHEMA)
    at, rows = ("127.0.0.1", cloud.port), Batch.of({"n": [1], "key": ["k"], "at": [0]}, schema)
    if role == "sender":
        false = Outlet("b", shed, at, peer="cloud").open(schema)
        false.write(rows)
        reader = Inlet("b", schema, cloud, peer="barn").open(lambda text, why: None)
    else:
        writer = Outlet("b", cloud, peer="barn").open(schema)
        writer.write(rows)
        false = reader = Inlet("b", schema, shed, at, peer="cloud").open(lambda text, why: None)
    wait_until(lambda: "bridge b: shed has called, and is not heard: it is for barn" in caplog.text)
    assert reader.read(10, 0.0).length == 0
    # and who it is for is heard, whoever else has called
    if role == "sender":
        Outlet("b", barn, at, peer="cloud").open(schema).write(rows)
    else:
        reader = Inlet("b", schema, barn, at, peer="cloud").open(lambda text, why: None)
    assert reader.read(10, 60).rows()[0]["n"] == 1
    shed.close()


@pytest.mark.parametrize("refused", ["barn", "cloud"])
def test_a_site_that_is_revoked_is_hung_up_on_whoever_dials_until_it_shows_another_certificate(
    certificates, cloud, barn, caplog, refused
):
    schema, refusing = Schema.of(SCHEMA), cloud if refused == "barn" else barn
    writer = Outlet("b", barn, ("127.0.0.1", cloud.port), peer="cloud").open(schema)
    reader = Inlet("b", schema, cloud, peer="barn").open(lambda text, why: None)

    def read_back(n, within_s):
        writer.write(Batch.of({"n": [n], "key": ["k"], "at": [0]}, schema))
        return [row["n"] for row in reader.read(10, within_s).rows()]

    assert read_back(1, 60) == [1]
    refusing.refuse({refused: ""})
    assert f"bridges do not talk to {refused}: the certificate that it shows is revoked" in caplog.text
    assert read_back(2, 0.5) == []
    refusing.refuse({refused: "1234"})  # another site has the name by now, and this one calls still
    assert read_back(3, 0.5) == []
    refusing.refuse({refused: serial_of(Identity.of(certificates, refused).certificate)})
    found = []
    wait_until(lambda: found.extend(row["n"] for row in reader.read(10, 1.0).rows()) or len(found) == 2)
    assert found == [2, 3]


def sockets_to(port):
    """Return how many sockets of this process are connected to a port."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as line:
            count += line.getpeername()[1:2] == (port,)
    return count


@pytest.mark.parametrize("answers", [True, False])
def test_nothing_is_left_of_connections_once_links_are_closed_also_of_one_that_is_being_made(
    certificates, cloud, answers
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = cloud.port if answers else silent.getsockname()[1]
        links = Links(client=Identity.of(certificates, "barn").client())
        Outlet("b", links, ("127.0.0.1", port), peer="cloud").open(Schema.of(SCHEMA))
        wait_until(lambda: links._connections if answers else sockets_to(port))
        links.close()
        assert sockets_to(port) == 0


def test_who_has_not_said_which_end_it_is_for_cannot_fill_the_memory(certificates, cloud, caplog):
    context = Identity.of(certificates, "barn").client()
    plain = socket.create_connection(("127.0.0.1", cloud.port), timeout=PATIENCE_S)
    with plain, context.wrap_socket(plain, server_hostname="cloud") as caller:
        caller.sendall(_HEAD.pack(0, 2**29, 0, 0))  # a first word of half a gigabyte
        assert caller.recv(1) == b""  # it is hung up on before that is there
    assert "is none of its messages" in caplog.text


def test_what_listens_elsewhere_says_so():
    taken = Links(("127.0.0.1", 0))
    with pytest.raises(InputError, match=f"cannot listen for bridges at 127.0.0.1:{taken.port}"):
        Links(("127.0.0.1", taken.port))
    taken.close()


def test_a_receiver_that_went_back_is_told_what_is_gone(cloud, barn):
    flow, out = Flow("gone"), io.Collect()
    sent = Flow("gone")
    sent.read("r", io.Items(ROWS[:100], SCHEMA)).write("w", Outlet("b", barn, ("127.0.0.1", cloud.port), peer="cloud"))
    inlet = Inlet("b", sent.steps["r"].outputs["out"], cloud)
    flow.read("r", inlet).write("w", out)
    sending = engine.start(sent)
    engine.start(flow).wait(PATIENCE_S)
    sending.wait(PATIENCE_S)
    outlet = Outlet("b", barn, ("127.0.0.1", cloud.port), peer="cloud")
    writer = outlet.open(inlet.schema)
    ((_, sender),) = writer._fan.senders.values()
    sender.machine.safe = 50
    reader = inlet.open(lambda text, why: None, {"life": sender.machine.life, "next": 7, "ended": False})
    with pytest.raises(InputError, match="goes on at 7, and all before 50 is gone"):
        reader.read(10, 60)
    reader.close()
    barn.detach(sender)


PART = Path(__file__).with_name("part.py")


def started(folder, role, port, certificates):
    command = [sys.executable, str(PART), str(folder), role, str(port), str(certificates)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seed", [1, 2][: share_of(2)])
def test_kills_of_either_end_lose_nothing_and_bring_nothing_twice(tmp_path, certificates, seed):
    chance = random.Random(seed)
    port = free_port()
    processes = {who: started(tmp_path, who, port, certificates) for who in ("receiver", "sender")}
    kills = 0
    for _ in range(6):
        time.sleep(0.4 + chance.random())
        who = chance.choice(["sender", "receiver"])
        if processes[who].poll() is None:
            os.kill(processes[who].pid, signal.SIGKILL)
            kills += 1
        processes[who].communicate()
        processes[who] = started(tmp_path, who, port, certificates)
    for again in itertools.count():
        (tmp_path / "hurry").touch()
        codes = {who: process.wait(300) for who, process in processes.items()}
        told = {who: process.communicate()[1] for who, process in processes.items()}
        assert not any(codes.values()), told
        assert again < 5
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        if len(lines) >= 4000:
            break
        processes = {who: started(tmp_path, who, port, certificates) for who in processes}
    assert kills >= 3
    assert [json.loads(line)["n"] for line in lines] == list(range(4000))


def test_who_calls_before_the_other_end_is_there_is_kept_waiting(barn, cloud):
    sent, found = Flow("sent"), io.Collect()
    outlet = Outlet("early", barn, ("127.0.0.1", cloud.port), peer="cloud")
    sent.read("r", io.Items(ROWS[:100], SCHEMA)).write("out", outlet)
    sending = engine.start(sent)
    wait_until(lambda: any(each._unheard for each in list(cloud._connections)))
    dialed = list(cloud._connections)
    received = Flow("received")
    received.read("r", Inlet("early", sent.steps["r"].outputs["out"], cloud)).write("in", found)
    engine.run(received)
    assert sending.wait(PATIENCE_S) is not None
    assert len(found.records) == 100
    assert len(dialed) == 1  # by the first connection: nobody had to call again


def test_a_sender_leaves_once_the_other_site_is_known_to_be_through(barn, tmp_path):
    through = []
    flow = Flow("sent")
    outlet = Outlet("last", barn, linger_s=float("inf"), is_through=lambda: bool(through))
    flow.read("r", io.Items(ROWS[:10], SCHEMA)).write("out", outlet)
    sending = engine.start(flow, checkpoint=tmp_path / "sender", every="50 ms")
    assert sending.done.wait(PATIENCE_S)
    assert sending._closed is False
    waits = threading.Thread(target=sending.wait, daemon=True)
    waits.start()
    through.append(True)  # its last word, that it has all, was lost with the link
    waits.join(PATIENCE_S)
    assert not waits.is_alive()


def wait_until(met):
    until_s = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Words:
    """A sink that notes what it is told of event time."""

    hears_time = True
    delivery = "neither"

    def __init__(self):
        self.told = []

    def open(self, schema):
        return self

    def write(self, batch):
        self.told += batch["n"].tolist()

    def advance(self, watermark):
        self.told.append(("time", watermark))

    def idle(self, idle):
        self.told.append(("idle", idle))

    def close(self):
        pass


def test_that_a_stream_is_silent_comes_in_order_and_is_told_again_by_a_part_that_was_stopped(cloud, barn, tmp_path):
    schema = Schema.of(SCHEMA)
    sender = Outlet("b", barn, ("127.0.0.1", cloud.port), peer="cloud").open(schema)

    def hop(words):
        flow = Flow("hop")
        flow.read("r", Inlet("b", schema, cloud)).filter("f", col.n >= 0).write("w", words)
        return engine.start(flow, checkpoint=tmp_path / "state", every="20 ms")

    def sent(n):
        sender.write(Batch.of_rows([{"n": n, "key": "k", "at": n}], schema))

    first, second, third = Words(), Words(), Words()
    run = hop(first)
    sent(1)
    sender.advance(5)
    sender.idle(True)
    wait_until(lambda: first.told == [1, ("time", 5), ("idle", True)])
    made = run.checkpointer.made
    complete = made.complete
    wait_until(lambda: made.complete > complete + 1)
    run.stop()
    run.wait()
    run = hop(second)  # the sender has nothing to say, and whoever comes after it may not have heard
    wait_until(lambda: second.told == [("idle", True)])
    sender.idle(False)
    wait_until(lambda: second.told[1:] == [("idle", False)])
    sender.idle(True)
    sent(2)
    wait_until(lambda: second.told[2:] == [("idle", True), ("idle", False), 2])
    complete = run.checkpointer.made.complete
    wait_until(lambda: run.checkpointer.made.complete > complete + 1)
    run.stop()
    run.wait()
    run = hop(third)
    sent(3)
    wait_until(lambda: third.told == [3])  # nothing of a silence that is over
    run.stop()
    run.wait()
