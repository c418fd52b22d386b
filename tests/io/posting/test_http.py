"""The HTTP sink, against a server in a process of its own: what arrives, is tried again, and is there after kills."""

import http.client
import json
import random
import sqlite3
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headwater import Flow, engine, io
from headwater.data.schema import Schema
from headwater.engine.dead import replay
from headwater.errors import FlowError, InputError
from headwater.flow.guarantees import guarantees
from headwater.io.dead import DeadLetterFolder
from headwater.io.forwarding import sender
from headwater.io.http.form import Form
from headwater.io.http.poster import Poster, UnreachedError
from headwater.io.http.uplink import HttpUplink
from killed import killed_until
from waiting import PATIENCE_S

NUMBERS = {"n": int}


def posting(sink, source):
    flow = Flow("posting")
    flow.read("in", source).write("out", sink)
    return flow


def items(count):
    return io.Items([{"n": n} for n in range(count)], NUMBERS)


def keys(server):
    with sqlite3.connect(server.base) as base:
        return [key for (key,) in base.execute("SELECT DISTINCT key FROM records")]


@pytest.mark.parametrize("form", ["lines", "array", "object"])
def test_records_are_posted_with_a_key_for_each_request(taking, form):
    server = taking()
    report = engine.run(posting(io.Http(server.url, form=form, records=30, token="t"), items(20)))
    assert server.taken() == list(range(20))
    assert report.dead_letters == 0
    assert len(keys(server)) >= (20 if form == "object" else 1)
    with sqlite3.connect(server.base) as base:
        assert base.execute("SELECT DISTINCT said FROM records").fetchall() == [("Bearer t",)]


def test_a_body_is_what_the_server_would_write():
    schema = Schema.of({"id": str, "x": float, "at": "time"})
    batch = (
        io.Items([{"id": 'a"\n', "x": None, "at": 0}, {"id": "b", "x": 0.5, "at": None}], schema).open(print).read(9, 0)
    )
    lines = b'{"id":"a\\"\\n","x":null,"at":"1970-01-01T00:00:00.000000Z"}\n{"id":"b","x":0.5,"at":null}\n'
    assert Form("lines", schema).body(batch) == lines
    assert Form("array", schema).body(batch) == b"[" + lines.strip().replace(b"}\n{", b"},{") + b"]"


def test_a_record_that_the_server_refuses_costs_that_record_alone(taking):
    server = taking("--refuse", "42")
    flow = posting(io.Http(server.url), items(100))
    flow.dead_letters.write("kept", dead := io.Collect())
    engine.run(flow)
    assert sorted(server.taken()) == [n for n in range(100) if n != 42]
    assert [row["record"] for row in dead.records] == ['{"n":42}']
    assert "422" in dead.records[0]["error"]
    assert "n 42 is unlucky" in dead.records[0]["error"]


def test_a_server_that_answers_with_an_error_is_asked_again_with_the_same_key(taking):
    server = taking("--lossy", "0.5")
    report = engine.run(posting(io.Http(server.url, records=10, patience="5 min"), items(100)))
    assert server.taken() == list(range(100))
    assert report.dead_letters == 0


def test_a_server_that_hangs_up_on_a_request_that_is_too_large_has_its_records_in_smaller_ones():
    source = io.Webhook(0, {"text": str}, largest="1 MB", buffer="8 MB")
    reader, taken, ending = source.open(pytest.fail), [], threading.Event()

    def take():
        while not ending.is_set():
            taken.append(reader.read(1000, 0.02).length)
            reader.commit(reader.position)

    taker = threading.Thread(target=take)
    taker.start()
    try:
        url = f"http://127.0.0.1:{reader.port}/"
        with pytest.raises(UnreachedError, match="answers 404"):  # whatever it is that is wrong
            Poster(io.Http(url + "elsewhere")).post(b" " * 30_000_000, "application/json", "k")
        report = engine.run(posting(io.Http(url), io.Items([{"text": "x" * 100_000} for _ in range(300)])))
    finally:
        ending.set()
        taker.join()
        reader.close()
    assert (sum(taken), report.dead_letters) == (300, 0)


class Dripping(BaseHTTPRequestHandler):
    """Begins an answer, and then says a little more of it all the time."""

    begins = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"

    def do_POST(self):
        until_s = time.monotonic() + PATIENCE_S
        self.wfile.write(self.begins)
        while time.monotonic() < until_s:
            try:
                self.wfile.write(b" ")
            except OSError:
                return
            time.sleep(0.02)

    def log_message(self, *said):
        pass


@pytest.mark.parametrize("begins", [Dripping.begins, b"HTTP/1.1 200 OK\r\nSaid: "], ids=["body", "head"])
def test_a_server_that_drips_its_answer_has_no_longer_for_it_than_one_that_says_nothing(begins):
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Dripping,), {"begins": begins}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    poster = Poster(io.Http(f"http://127.0.0.1:{server.server_port}/", timeout="300 ms"))
    try:
        with pytest.raises(UnreachedError, match="timed out"):
            poster.post(b"{}", "application/json", "k")
        assert poster._connection is None
    finally:
        server.shutdown()
        server.server_close()


def test_requests_that_were_taken_are_not_sent_again_because_a_later_one_was_not(taking):
    server = taking("--lossy", "0.5")  # forty in a row would never come through
    uplink = HttpUplink(io.Http(server.url, records=5), Schema.of(NUMBERS))
    batch, failures = items(200).open(print).read(200, 0), 0
    while failures < 500:
        try:
            assert uplink.deliver("name", 7, [batch]) == []
            break
        except InputError:
            failures += 1
    uplink.close()
    assert failures < 500
    assert server.taken() == list(range(200))


@pytest.mark.parametrize("status", [422, 302, 500])
def test_what_a_server_answers_is_told_and_never_obeyed_by_a_terminal(status):
    class Hostile(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status, "gone\x1b[2J")
            self.send_header("Location", "away\x1b[2J")
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"\x1b[31m")

        def log_message(self, *said):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        poster = Poster(io.Http(f"http://127.0.0.1:{server.server_port}/"))
        with pytest.raises((InputError, UnreachedError), match=r"gone\\x1b\[2J: \\x1b\[31m") as told:
            poster.post(b"{}", "application/json", "key")
        poster.close()
        server.shutdown()
    assert str(told.value).isprintable()


def test_head_and_body_of_a_request_are_one_piece(taking, monkeypatch):
    server, sent, plain = taking(), [], http.client.HTTPConnection.send

    def send(connection, data):
        if connection._pieces is None:
            sent.append(data)
        plain(connection, data)

    monkeypatch.setattr(http.client.HTTPConnection, "send", send)
    engine.run(posting(io.Http(server.url), items(3)))
    assert server.taken() == [0, 1, 2]
    assert all(piece.startswith(b"POST ") and piece.endswith(b"}\n") for piece in sent)


class Flaky(BaseHTTPRequestHandler):
    """Answers only some of the requests as they deserve, and refuses some records."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    refused, answered, count, every = {3, 42}, [], 0, 2

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).count += 1
        status = 503
        if self.count % self.every == 0:
            numbers = {json.loads(line)["n"] for line in body.splitlines()}
            self.answered.append((self.headers["Idempotency-Key"], numbers))
            status = 422 if numbers & self.refused else 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def flaky():
    Flaky.answered, Flaky.count, Flaky.every = [], 0, 2
    server = ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield io.Http(f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    thread.join()
    server.server_close()
    # over such a link, nothing is asked again that was answered while refused records were searched for
    assert max(Counter(key for key, _ in Flaky.answered).values()) == 1
    taken = [n for _, numbers in Flaky.answered if not numbers & Flaky.refused for n in numbers]
    assert sorted(taken) == [n for n in range(200) if n not in Flaky.refused]


@pytest.mark.parametrize("size", [200, 5])
def test_a_part_goes_over_a_flaky_link_request_by_request(flaky, size):
    uplink, failures, refused = HttpUplink(flaky, Schema.of(NUMBERS)), 0, None
    whole = items(200).open(print).read(200, 0)
    while refused is None and failures < 100:
        try:
            batches = [whole.slice(start, start + size) for start in range(0, 200, size)]  # as records came, by and by
            [(_, refused)] = uplink.deliver("name", 7, batches)
        except InputError:
            failures += 1
    uplink.close()
    assert failures <= 1  # one that answers now and then is not away
    assert sorted(refused) == [3, 42]
    assert len(Flaky.answered) < 40  # requests are as large as they may be, however the records came


def test_a_batch_goes_over_a_flaky_link_request_by_request(flaky):
    writer = flaky.open(Schema.of(NUMBERS))
    assert sorted(writer.write(items(200).open(print).read(200, 0))) == [3, 42]
    writer.close()


def test_what_is_forwarded_goes_over_a_flaky_link_request_by_request(flaky, tmp_path, monkeypatch):
    Flaky.every = 5  # so often in a row that a sink which gathers records would be opened anew
    monkeypatch.setattr(sender, "_FIRST_S", 0.001)
    monkeypatch.setattr(sender, "_MOST_S", 0.002)
    writer, end = io.forward(flaky, tmp_path / "log").open(Schema.of(NUMBERS)), time.monotonic() + PATIENCE_S
    writer.write(items(200).open(print).read(200, 0))
    while writer.account()["waiting"] and time.monotonic() < end:
        time.sleep(0.02)
    writer.close()
    assert (writer.account()["waiting"], writer.account()["refused"]) == (0, 2)


def test_without_a_checkpoint_what_a_server_does_not_take_becomes_dead_letters(port, caplog):
    report = engine.run(posting(io.Http(f"http://127.0.0.1:{port}/", patience="100 ms"), items(10)))
    assert report.dead_letters == 10
    assert "with a checkpoint (--checkpoint DIR), or --forward DIR, records wait on disk" in caplog.text


def test_with_a_checkpoint_records_wait_for_a_server_that_is_away(taking, tmp_path):
    server = taking()
    server.kill()
    flow = posting(io.Http(server.url, token="wrong"), items(500))
    report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert report.dead_letters == 0
    assert report.extra["sinks"]["out"]["waiting"] == 500
    server.start()
    report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert report.extra["sinks"]["out"]["waiting"] == 0
    assert server.taken() == list(range(500))


@pytest.mark.parametrize("forwarded", [False, True])
def test_what_a_server_refused_is_a_dead_letter_that_can_be_mended_and_replayed(taking, tmp_path, forwarded):
    server = taking("--refuse", "3")
    sink = io.Http(server.url, records=10)
    flow = posting(io.forward(sink, tmp_path / "log") if forwarded else sink, items(20))
    report = engine.run(flow, **({} if forwarded else {"checkpoint": tmp_path / "checkpoint"}))
    assert report.extra["sinks"]["out"]["refused"] == 1
    folder = (tmp_path / "log" if forwarded else tmp_path / "checkpoint" / "sinks" / "out") / "refused"
    (letter,) = DeadLetterFolder(folder).letters()
    assert (letter.step, letter.to_json()["record"]) == (str(sink), {"n": 3})
    assert "unlucky" in letter.error
    assert replay(flow, folder, [letter], {"n": 300}).released == [letter.id]
    assert sorted(server.taken()) == [n for n in range(20) if n != 3] + [300]
    assert list(DeadLetterFolder(folder).letters()) == []


def test_what_is_forwarded_has_the_same_key_whenever_it_is_sent(taking, tmp_path):
    server = taking("--lossy", "0.4")
    sink = io.forward(io.Http(server.url, records=50), tmp_path / "log", linger="1 s")
    report = engine.run(posting(sink, items(100)))
    for _ in range(60):
        if report.extra["sinks"]["out"]["waiting"] == 0:
            break
        report = engine.run(posting(sink, items(0)))
    assert server.taken() == list(range(100))


def test_nothing_is_lost_or_twice_when_the_flow_and_the_server_are_killed(taking, tmp_path):
    server, checkpoint, count = taking("--lossy", "0.05"), tmp_path / "checkpoint", 2000
    ending = threading.Event()

    def kill_the_server():
        chance = random.Random(3)
        while not ending.wait(0.1 + chance.random() * 0.4):
            server.kill()
            server.start()

    def run():
        source = io.Generate(lambda numbers: {"n": numbers}, NUMBERS, rate=2000, count=count)
        engine.run(posting(io.Http(server.url, records=100, once=True), source), checkpoint=checkpoint, every="30 ms")

    killing = threading.Thread(target=kill_the_server)
    killing.start()
    try:
        killed_until(lambda: False, run, kills=6, longest_s=0.4, ends=True)
    finally:
        ending.set()
        killing.join(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while len(server.taken()) < count and time.monotonic() < end:
        run()  # a run that ends leaves what it cannot deliver at once to the next one
    counts = Counter(server.taken())
    assert {n for n in range(count) if n not in counts} == set()  # lost
    assert {n: many for n, many in counts.items() if many > 1} == {}  # twice


def test_what_holds_depends_on_whether_the_server_knows_its_keys():
    for once, holds in ((False, "at least once"), (True, "exactly once")):
        flow = posting(io.Http("http://localhost/", once=once), io.Generate(lambda n: {"n": n}, NUMBERS, rate=1))
        assert [each.holds for each in guarantees(flow)] == [holds]


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("localhost:80", {}, "http://host/path"),
        ("https://", {}, "http://host/path"),
        ("http://me:s3cret@host/", {}, "not in the URL"),
        ("http://host/", {"form": "line"}, "did you mean 'lines'"),
        ("http://host/", {"records": 0}, "1 or more"),
        ("http://host/", {"headers": {"X": "a\r\nY: b"}}, "line break"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_sent(url, options, told):
    with pytest.raises(FlowError, match=told) as raised:
        io.Http(url, **options)
    assert "s3cret" not in str(raised.value)
