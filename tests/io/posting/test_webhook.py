"""The webhook source: what it takes, what it answers, and what is there after its flow was killed."""

import errno
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections import Counter

import pytest

from headwater import Flow, engine, io
from headwater.errors import FlowError, InputError
from headwater.flow.guarantees import guarantees
from headwater.io.http.reader import WebhookReader
from headwater.io.http.server import _Handler
from headwater.io.log import SystemDisk
from headwater_bench.servers.posting import posted as _post
from killed import killed_until, running
from waiting import PATIENCE_S, hangs_up_on_who_drips, wait_until

LEVELS = {"sensor": str, "height": float}


class Serving:
    """An open webhook, of which a thread takes all records as a runner would."""

    def __init__(self, source, *, taking=True):
        self.rejected, self.rows, self._ending = [], [], threading.Event()
        self.reader = source.open(lambda text, why: self.rejected.append((text, why)))
        self._tls = source.certificate
        self._thread = threading.Thread(target=self._take)
        if taking:
            self._thread.start()

    def _take(self):
        while not self._ending.is_set():
            batch = self.reader.read(100, 0.02)
            self.rows += batch.rows()
            self.reader.commit(self.reader.position)

    def post(self, body, path="/", method="POST", **headers):
        if self._tls:
            context = ssl.create_default_context(cafile=self._tls)
            connection = http.client.HTTPSConnection("localhost", self.reader.port, context=context, timeout=PATIENCE_S)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.reader.port, timeout=PATIENCE_S)
        connection.request(method, path, body, {name.replace("_", "-"): said for name, said in headers.items()})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        return answer.status, said

    def close(self):
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self.reader.close()


@pytest.fixture
def serving():
    opened = []

    def make(taking=True, **options):
        opened.append(Serving(io.Webhook(0, LEVELS, **options), taking=taking))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'{"sensor": "a", "height": 1}', 1),
        (b'{\n  "sensor": "a",\n  "height": 1\n}\n', 1),
        (b'[{"sensor": "a", "height": 1}]', 1),
        (b' [ {"sensor": "a", "height": 1} ,\n{"sensor": "b", "x": [1, "]}", {"y": "\\""}]} ] ', 2),
        (b'{"sensor": "a", "height": 1}\n\n{"sensor": "b"}\n', 2),
        (b'\xef\xbb\xbf{"sensor": "a", "height": 1}', 1),
        ([b'{"sensor": "a", ', b'"height": 1}\r\n{"sensor": "b"}'], 2),  # in chunks
        (b"[]", 0),
    ],
)
def test_objects_arrays_and_lines_are_taken(serving, body, count):
    server = serving()
    assert server.post(body) == (200, {"taken": count})
    expected = [{"sensor": "a", "height": 1.0}, {"sensor": "b", "height": None}]
    assert server.rows == expected[:count]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "the body is empty"),
        (b'{"sensor": 1}', "record 1: sensor: expected text, got int"),
        (b'[{"sensor": "a"}, {"height": "high"}]', "record 2: height: expected float, got str"),
        (b'{"sensor": "a"}\n\n{"sensor": \n', "record 3: not JSON"),
        (b'[{"sensor": "a"}, 3]', "record 2: expected object, got int"),
        (b'[{"sensor": "a"}', "the body is not JSON: Input data was truncated"),
        (b'[{"sensor": "a"}] []', "the body is not JSON"),
        (b"sensor=a", "record 1: not JSON"),
    ],
)
def test_a_request_with_what_does_not_fit_is_refused_as_a_whole_and_told_why(serving, body, told):
    server = serving()
    status, said = server.post(body)
    assert status == 400
    assert told in said["error"]
    assert server.rows == server.rejected == []


def test_what_does_not_fit_becomes_dead_letters_where_that_is_asked_for(serving):
    server = serving(bad="dead letter")
    body = b'[{"sensor": "a"}, {"sensor": 2}, {"sensor": "c"}]'
    assert server.post(body) == (200, {"taken": 2, "dead_letters": 1})
    assert server.post(b"{") == (200, {"taken": 0, "dead_letters": 1})
    assert [row["sensor"] for row in server.rows] == ["a", "c"]
    assert server.rejected[0] == ('{"sensor": 2}', "record 2 of a request: sensor: expected text, got int")
    assert len(server.rejected) == 2


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "application/x-ndjson"])
@pytest.mark.parametrize(
    ("body", "bad"),
    [
        (b'rubbish\n{"sensor": "a"}\n{"sensor": "b"}', ["rubbish"]),
        (b'{"sensor": "a"}\nrubbish\n{"sensor": "b"}', ["rubbish"]),
        (b'{"sensor": "a"}\r\n{"sens\r\n{"sensor": "b"}\r\n', ['{"sens']),
        (b'{"sensor": "a"}\n{"sensor": "b"}\n3', ["3"]),
        (b'"text"\n\n{"sensor": "a"}\n}\n{"sensor": "b"}\n', ['"text"', "}"]),
    ],
)
def test_a_line_that_is_no_record_costs_none_of_the_others_wherever_it_is(serving, kind, body, bad):
    server = serving(bad="dead letter")
    assert server.post(body, **{"Content-Type": kind}) == (200, {"taken": 2, "dead_letters": len(bad)})
    assert [row["sensor"] for row in server.rows] == ["a", "b"]
    assert [text for text, _ in server.rejected] == bad


@pytest.mark.parametrize(
    ("body", "taken"),
    [(b'{\n  "sensor": "a",\n  "height":\n  1.5\n}\n', 1), (b'{\n  "sensor": "a",\n  "height":\n', 0)],
)
def test_an_object_on_several_lines_is_one_record_whole_or_broken(serving, body, taken):
    server = serving(bad="dead letter")
    status, said = server.post(body)
    assert (status, said["taken"], said.get("dead_letters", 0)) == (200, taken, 1 - taken)


def test_a_flow_without_a_checkpoint_answers_when_all_of_a_request_were_dead_letters(port):
    flow = Flow("levels")
    flow.read("in", io.Webhook(port, LEVELS, bad="dead letter")).write("out", kept := io.Collect())
    run = engine.start(flow)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        for body, taken in ((b'{"sensor": 1}', 0), (b'{"sensor": "a"}', 1)):
            connection.request("POST", "/", body)
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["taken"]) == (200, taken)
        connection.close()
    finally:
        run.stop()
        report = run.wait(PATIENCE_S)
    assert [row["sensor"] for row in kept.records] == ["a"]
    assert report.dead_letters == 1


def test_who_lacks_the_token_is_refused(serving):
    server = serving(token="s3cret")
    for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}, {"Authorization": "Bearer ä"}):
        status, said = server.post(b'{"sensor": "a"}', **given)
        assert status == 401
        assert "Authorization: Bearer" in said["error"]
    assert server.post(b'{"sensor": "a"}', Authorization="Bearer s3cret")[0] == 200
    assert len(server.rows) == 1


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_who_sends_much_that_is_refused_is_told_why(serving, request, tls):
    cert, key = request.getfixturevalue("certificate") if tls else (None, None)
    server = serving(token="secret", certificate=cert, key=key)
    for path, told, status in (("/", "wrong", 401), ("/elsewhere", "secret", 404), ("/", "secret", 413)):
        assert server.post(b" " * 20_000_000, path, Authorization=f"Bearer {told}")[0] == status
    assert server.post(b" " * 20_000_000, method="PUT")[0] == 405


def test_what_a_browser_sends_for_a_page_of_somebody_else_is_refused_unless_it_knows_the_token(serving):
    body, page = b'{"sensor": "a"}', {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"}
    open_to_all, guarded = serving(), serving(token="s3cret")
    rebound = {"Host": "evil.example:80", "Origin": "http://evil.example:80", "Sec_Fetch_Site": "same-origin"}
    for foreign in (page, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}, rebound):
        assert open_to_all.post(body, **foreign)[0] == 403
    own = f"127.0.0.1:{open_to_all.reader.port}"
    for sender in (
        {},
        {"Host": "plant.example"},
        {"Host": own, "Origin": f"http://{own}", "Sec_Fetch_Site": "same-origin"},
    ):
        assert open_to_all.post(body, **sender)[0] == 200
    assert guarded.post(body, Authorization="Bearer s3cret", **page)[0] == 200
    assert (len(open_to_all.rows), len(guarded.rows)) == (3, 1)


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        ({"path": "/other"}, 404, "records go to /"),
        ({"method": "GET", "body": None}, 405, "by POST"),
        ({"method": "PUT"}, 405, "by POST"),
        ({"Content_Encoding": "gzip"}, 415, "gzip"),
        ({"Content_Length": "x"}, 400, "Content-Length is a number"),
        ({"Content_Length": "9" * 5000}, 400, "Content-Length is a number"),
        ({"Content_Length": "3", "Transfer_Encoding": "chunked"}, 400, "either Content-Length"),
        ({"body": b" " * 2000}, 413, "1,000 bytes"),
        ({"body": [b" " * 600, b" " * 600]}, 413, "1,000 bytes"),
    ],
)
def test_what_is_wrong_with_a_request_is_told(serving, given, status, told):
    server = serving(largest=1000)
    answer, said = server.post(**{"body": b'{"sensor": "a"}', **given})
    assert (answer, told in said["error"]) == (status, True), said
    assert server.post(b'{"sensor": "a"}')[0] == 200


def test_who_says_a_little_now_and_then_and_no_request_is_not_listened_to_for_long(serving, monkeypatch):
    monkeypatch.setattr(_Handler, "timeout", 0.3)
    assert hangs_up_on_who_drips(("127.0.0.1", serving().reader.port), b"POST / HTTP/1.1\r\nA: ")


def test_a_full_buffer_is_told_at_once(serving):
    server = serving(taking=False, buffer=60, largest=60)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(server.post(b'{"sensor": "one"}' + b" " * 30)))
    waiting.start()
    end = time.monotonic() + PATIENCE_S
    while not server.reader._inbox._waiting and time.monotonic() < end:
        time.sleep(0.01)
    status, said = server.post(b'{"sensor": "two"}')
    assert (status, "send it again later" in said["error"]) == (429, True)
    server.close()
    waiting.join(PATIENCE_S)
    assert answers[0][0] == 503


def test_what_is_not_taken_in_time_is_not_kept(serving):
    server = serving(taking=False, patience="100 ms")
    status, said = server.post(b'{"sensor": "one"}')
    assert (status, "none of it is kept" in said["error"]) == (503, True)
    assert server.reader.read(10, 0.0).length == 0


def test_what_was_handed_out_and_never_committed_is_answered_with_doubt(serving):
    server = serving(taking=False)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(server.post(b'{"sensor": "one"}')))
    waiting.start()
    assert server.reader.read(10, PATIENCE_S).length == 1
    server.close()
    waiting.join(PATIENCE_S)
    assert answers[0][0] == 503
    assert "the same Idempotency-Key" in answers[0][1]["error"]


def test_a_request_that_comes_again_is_taken_once_also_by_a_later_reader_and_also_where_it_was_taken_in_part(serving):
    server = serving(keyed=True)
    assert server.post(b'{"sensor": "a"}')[0] == 400  # no key
    assert server.post(b'{"sensor": "a"}', Idempotency_Key="k1") == (200, {"taken": 1})
    assert server.post(b'{"sensor": "a"}', Idempotency_Key="k1") == (200, {"taken": 1, "before": True})
    assert len(server.rows) == 1

    half = Serving(io.Webhook(0, LEVELS, keyed=True), taking=False)
    body = b'[{"sensor": "b"}, {"sensor": "c"}, {"sensor": "d"}]'
    sender = threading.Thread(target=lambda: half.post(body, Idempotency_Key="k2"))
    sender.start()
    first = half.reader.read(2, PATIENCE_S)
    known = half.reader.known
    half.close()
    sender.join(PATIENCE_S)
    assert [row["sensor"] for row in first.rows()] == ["b", "c"]

    later = io.Webhook(0, LEVELS, keyed=True).open(pytest.fail, known)
    sender = threading.Thread(target=lambda: later_answers.append(_post(later.port, body, "k2")))
    later_answers = []
    sender.start()
    rest = later.read(10, PATIENCE_S)
    later.commit(later.position)
    sender.join(PATIENCE_S)
    assert [row["sensor"] for row in rest.rows()] == ["d"]
    assert later_answers == [200]
    assert _post(later.port, body, "k2") == 200
    later.close()


def test_two_that_send_the_same_at_once_are_both_answered_and_it_is_there_once(serving):
    server = serving(taking=False, keyed=True)
    answers = []
    senders = [
        threading.Thread(target=lambda: answers.append(server.post(b'{"sensor": "a"}', Idempotency_Key="k")))
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    count, end = 0, time.monotonic() + PATIENCE_S
    while any(sender.is_alive() for sender in senders) and time.monotonic() < end:
        count += server.reader.read(10, 0.02).length
        server.reader.commit(server.reader.position)
    assert count == 1
    assert [status for status, _ in answers] == [200] * 4


def test_a_text_is_taken_as_it_is(serving):
    server = Serving(io.Webhook(0, {"line": str}, payload="text"))
    assert server.post("§ 1, 2".encode())[0] == 200
    assert server.post(b"\xff")[0] == 400
    server.close()
    assert server.rows == [{"line": "§ 1, 2"}]


@pytest.fixture
def certificate(tmp_path):
    """Return the files of a certificate of this machine and its key."""
    files = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-subj", "/CN=localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *files]
    try:
        subprocess.run([*made, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("openssl is not here")
    return str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")


def test_who_is_answered_by_tls_after_the_server_has_ended_gets_it_by_tls(serving, certificate, monkeypatch):
    cert, key = certificate
    server = serving(taking=False, certificate=cert, key=key)
    answers, ended, respond = [], threading.Event(), _Handler._respond
    monkeypatch.setattr(_Handler, "_respond", lambda *args: ended.wait(PATIENCE_S) and respond(*args))
    sender = threading.Thread(target=lambda: answers.append(server.post(b'{"sensor": "one"}')))
    sender.start()
    wait_until(lambda: server.reader._inbox._waiting)
    server.close()
    ended.set()
    sender.join(PATIENCE_S)
    assert answers == [(503, {"error": "the flow is ending; send it again"})]


def test_records_come_by_tls(certificate):
    cert, key = certificate
    server = Serving(io.Webhook(0, LEVELS, certificate=cert, key=key))
    assert server.post(b'{"sensor": "a"}') == (200, {"taken": 1})
    flow = Flow("levels")
    url = f"https://localhost:{server.reader.port}/"
    flow.read("in", io.Items([{"sensor": "b", "height": 1.0}])).write("out", io.Http(url, ca=cert))
    engine.run(flow)
    server.close()
    assert [row["sensor"] for row in server.rows] == ["a", "b"]


def test_a_port_that_is_taken_is_told(serving):
    server = serving()
    with pytest.raises(InputError, match="is another server on that port"):
        io.Webhook(server.reader.port, LEVELS).open(print)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"port": "80"}, "port is a number"),
        ({"path": "in"}, "begins with a /"),
        ({"bad": "drop"}, "'refuse' or 'dead letter'"),
        ({"token": ""}, "the token is empty"),
        ({"key": "k.pem"}, "goes with certificate="),
        ({"buffer": 10}, "buffer is at least"),
        ({"connections": 0}, "1 or more"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_listens(options, told):
    with pytest.raises(FlowError, match=told):
        io.Webhook(**{"port": 0, "schema": LEVELS, **options})


def test_what_holds_is_said(tmp_path):
    for keyed, holds in ((False, "at least once"), (True, "exactly once")):
        flow = Flow("levels")
        read = flow.read("in", io.Webhook(8080, LEVELS, keyed=keyed))
        read.write("out", io.JsonLines(tmp_path / "out.jsonl"))
        assert [each.holds for each in guarantees(flow)] == [holds]


def test_what_was_answered_with_200_is_there_once_however_often_the_flow_is_killed(tmp_path, port):
    out, checkpoint, count = tmp_path / "out.jsonl", tmp_path / "checkpoint", 120
    done = threading.Event()

    def numbers():
        flow = Flow("numbers")
        flow.read("in", io.Webhook(port, {"n": int}, keyed=True)).write("out", io.JsonLines(out))
        return flow

    def send():
        for request in range(count):
            body = json.dumps([{"n": 10 * request + row} for row in range(10)]).encode()
            while _post(port, body, f"request {request}") != 200:
                time.sleep(0.02)
            time.sleep(0.01)
        done.set()

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    killed_until(
        lambda: done.is_set() and len(written(out)) >= 10 * count,
        lambda: engine.run(numbers(), checkpoint=checkpoint, every="20 ms"),
        kills=6,
    )
    sending.join(PATIENCE_S)
    last = engine.start(numbers(), checkpoint=checkpoint)  # brings the file to what the checkpoint says, and goes on
    end = time.monotonic() + PATIENCE_S
    while len(written(out)) < 10 * count and time.monotonic() < end:
        time.sleep(0.02)
    last.stop()
    last.wait(PATIENCE_S)
    counts = Counter(written(out))
    assert {n for n in range(10 * count) if n not in counts} == set()  # lost
    assert {n: many for n, many in counts.items() if many > 1} == {}  # twice


def test_a_sender_that_was_not_answered_before_a_kill_sends_again_and_it_is_there_once(tmp_path, port):
    out, checkpoint, answers = tmp_path / "out.jsonl", tmp_path / "checkpoint", []
    body = json.dumps([{"n": n} for n in range(6000)]).encode()  # more than is read at once: some are in the log alone

    def numbers():
        flow = Flow("numbers")
        flow.read("in", io.Webhook(port, {"n": int}, keyed=True)).write("out", io.JsonLines(out))
        return flow

    def killed_when_it_would_answer():
        def leave(reader, position):
            if position:
                os.kill(os.getpid(), signal.SIGKILL)

        WebhookReader.commit = leave
        engine.run(numbers(), checkpoint=checkpoint, every="20 ms")

    def send():
        while not answers:
            status = _post(port, body, "the only one")
            if status == 200:
                answers.append(status)
            time.sleep(0.02)

    child = os.fork()
    if child == 0:
        killed_when_it_would_answer()
        os._exit(1)
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    run = engine.start(numbers(), checkpoint=checkpoint)
    sending.join(PATIENCE_S)
    run.stop()
    run.wait(PATIENCE_S)
    assert answers == [200]
    assert written(out) == list(range(6000))


def test_on_a_full_disk_senders_wait_and_the_run_goes_on_when_there_is_room(tmp_path, port, monkeypatch):
    out, full, plain = tmp_path / "out.jsonl", threading.Event(), SystemDisk.write
    tried = threading.Event()

    def write(disk, fd, data):
        if full.is_set() and ".log" in os.readlink(f"/proc/self/fd/{fd}"):
            tried.set()
            raise OSError(errno.ENOSPC, "")
        return plain(disk, fd, data)

    monkeypatch.setattr(SystemDisk, "write", write)
    flow = Flow("numbers")
    flow.read("in", io.Webhook(port, {"n": int}, patience="1 hour")).write("out", io.JsonLines(out))
    run = engine.start(flow, checkpoint=tmp_path / "checkpoint")
    assert _post(port, b'{"n": 1}', "1") == 200
    full.set()
    answers = []
    sender = threading.Thread(target=lambda: answers.append(_post(port, b'{"n": 2}', "2")))
    sender.start()
    assert tried.wait(PATIENCE_S)
    assert not answers
    full.clear()
    sender.join(PATIENCE_S)
    assert answers == [200]
    full.set()
    tried.clear()
    late = threading.Thread(target=lambda: answers.append(_post(port, b'{"n": 3}', "3")))
    late.start()
    assert tried.wait(PATIENCE_S)
    run.stop()
    late.join(PATIENCE_S)  # who waits is told to send again, at once: nobody need wait for the run first
    assert answers == [200, 503]
    assert run.wait(PATIENCE_S) is not None  # it ends although there is no room
    assert written(out) == [1, 2]


@pytest.mark.parametrize("every", ["1 hour", "20 ms"])
def test_what_was_answered_with_200_is_there_though_somebody_deletes_the_checkpoint(tmp_path, port, every):
    out, checkpoint = tmp_path / "out.jsonl", tmp_path / "checkpoint"

    def numbers():
        flow = Flow("numbers")
        flow.read("in", io.Webhook(port, {"n": int}, keyed=True)).write("out", io.JsonLines(out))
        return flow

    def send(n):
        until = time.monotonic() + PATIENCE_S
        while _post(port, json.dumps({"n": n}).encode(), str(n)) != 200:
            assert time.monotonic() < until
            time.sleep(0.02)

    with running(lambda: engine.run(numbers(), checkpoint=checkpoint, every=every)):
        for n in range(20):
            send(n)
            if n in (5, 12):
                shutil.rmtree(checkpoint.rename(tmp_path / f"away {n}"))
        if every != "1 hour":
            until = time.monotonic() + PATIENCE_S
            while not list(checkpoint.glob("*.checkpoint")) or len(written(out)) < 20:
                assert time.monotonic() < until
                time.sleep(0.02)
    run = engine.start(numbers(), checkpoint=checkpoint)
    until = time.monotonic() + PATIENCE_S
    while len(written(out)) < 20 and time.monotonic() < until:
        time.sleep(0.02)
    run.stop()
    run.wait(PATIENCE_S)
    assert written(out) == list(range(20))


def written(out):
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line)["n"] for line in lines if line.endswith("}")]
