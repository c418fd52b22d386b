"""Records that wait for a sink: while it is away, when it comes back, across a kill."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest
from holding import check_nothing_else_is_held

from headwater import Flow, engine, io
from headwater.data.batch import Batch
from headwater.data.frames import pack, unpack_frame
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.io.dead import DeadLetterFolder
from headwater.io.forwarding import sender
from headwater.io.log import Log, Reader
from ports import free_port
from waiting import PATIENCE_S, wait_until

SCHEMA = Schema.of({"n": int})


class Uplink:
    """A sink that is there or not, as the test says; it keeps what arrives. With `gathers`, it does so at a flush."""

    def __init__(self, *, up=True, gathers=False):
        self.up, self.arrived, self.opened = up, [], 0
        if gathers:
            self.flush = self._flush
        self.gathered = []
        self.gathers = gathers

    def open(self, schema):
        self.check()
        self.opened += 1
        return self

    def write(self, batch):
        if self.gathers:
            self.gathered += batch["n"].tolist()
            return
        self.check()
        self.arrived += batch["n"].tolist()

    def _flush(self):
        self.check()
        self.arrived += self.gathered
        self.gathered = []

    def close(self):
        self.gathered = []

    def check(self):
        if not self.up:
            raise InputError("the uplink is cut")

    def __str__(self):
        return "uplink"


def numbers(*values):
    return Batch.of({"n": list(values)}, SCHEMA)


def run(sink, count, **options):
    flow = Flow("f")
    flow.read("in", io.Items([{"n": n} for n in range(count)], SCHEMA)).write("out", sink)
    return engine.run(flow, **options)


@pytest.mark.parametrize("gathers", [False, True])
def test_everything_arrives_in_order_and_the_report_says_so(tmp_path, gathers):
    uplink = Uplink(gathers=gathers)
    report = run(io.forward(uplink, tmp_path / "log"), 5000)
    assert uplink.arrived == list(range(5000))
    account = report.to_json()["sinks"]["out"]
    assert account == {
        "taken": 5000,
        "waited_before": 0,
        "forwarded": 5000,
        "waiting": 0,
        "refused": 0,
        "dropped": {},
        "failed_attempts": 0,
    }
    assert "out: 5,000 taken, 0 waited before, 5,000 forwarded, 0 waiting" in str(report)


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_sink_that_is_down_at_the_start_stops_nothing_and_the_next_run_sends_it_all(tmp_path, order, caplog):
    uplink = Uplink(up=False)
    sink = io.forward(uplink, tmp_path / "log", order=order)
    report = run(sink, 3000)
    account = report.to_json()["sinks"]["out"]
    assert (account["forwarded"], account["waiting"]) == (0, 3000)
    assert report.last.records_out["out"] == 3000
    assert "3000 records wait in" in caplog.text
    uplink.up = True
    account = run(sink, 10).to_json()["sinks"]["out"]
    assert (account["waited_before"], account["taken"], account["forwarded"]) == (3000, 10, 3010)
    assert Counter(uplink.arrived) == Counter([*range(3000), *range(10)])
    if order == "oldest":
        assert uplink.arrived == [*range(3000), *range(10)]


@pytest.mark.parametrize("gathers", [False, True])
def test_a_cut_in_the_middle_costs_nothing_and_doubles_nothing(tmp_path, gathers):
    uplink = Uplink(gathers=gathers)
    writer = io.forward(uplink, tmp_path).open(SCHEMA)
    for n in range(300):
        if n in (100, 200):
            uplink.up = not uplink.up
        writer.write(numbers(n))
        if n == 150:
            wait_until(lambda: writer.account()["failed_attempts"] > 0)
    wait_until(lambda: len(uplink.arrived) == 300)
    writer.close()
    assert uplink.arrived == list(range(300))


def test_the_newest_leaves_first_after_a_cut(tmp_path):
    uplink = Uplink(up=False)
    writer = io.forward(uplink, tmp_path, order="newest").open(SCHEMA)
    for n in range(500):
        writer.write(numbers(n))
    writer.close()
    uplink.up = True
    again = io.forward(uplink, tmp_path, order="newest").open(SCHEMA)
    wait_until(lambda: len(uplink.arrived) == 500)
    again.close()
    assert uplink.arrived == list(range(499, -1, -1))


def test_what_was_sent_out_of_turn_is_not_sent_again_by_the_next_run(tmp_path):
    class Few(Uplink):
        """Takes so many records, then is gone."""

        most = 0

        def check(self):
            if len(self.arrived) >= self.most:
                raise InputError("gone")

    uplink = Few()
    for most, count in ((0, 500), (100, 0), (250, 0), (9999, 0)):
        uplink.most = most
        writer = io.forward(uplink, tmp_path, order="newest").open(SCHEMA)
        for n in range(count):
            writer.write(numbers(n))
        writer.close()
    assert sorted(uplink.arrived) == list(range(500))


def test_a_full_log_holds_the_flow_until_there_is_room(tmp_path, caplog):
    uplink = Uplink(up=False)
    flow = Flow("f")
    records = io.Items([{"n": n} for n in range(20_000)], SCHEMA)
    flow.read("in", records).write("out", io.forward(uplink, tmp_path / "log", bytes="50 kB"))
    running = engine.start(flow)
    wait_until(lambda: "the flow is held" in caplog.text)
    uplink.up = True
    report = running.wait()
    assert uplink.arrived == list(range(20_000))
    assert report.to_json()["sinks"]["out"]["forwarded"] == 20_000


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_full_log_drops_the_oldest_and_the_sums_hold(tmp_path, order):
    uplink = Uplink(up=False)
    sink = io.forward(uplink, tmp_path / "log", bytes="50 kB", full="drop oldest", order=order)
    account = run(sink, 20_000).to_json()["sinks"]["out"]
    dropped = account["dropped"]["log full"]
    assert dropped > 10_000
    assert dropped + account["waiting"] == 20_000
    uplink.up = True
    account = run(sink, 0).to_json()["sinks"]["out"]
    assert sorted(uplink.arrived) == list(range(dropped, 20_000))
    assert account["forwarded"] == account["waited_before"] == 20_000 - dropped


def test_a_full_log_drops_what_has_the_least_priority(tmp_path):
    uplink = Uplink(up=False)
    schema = Schema.of({"n": int, "urgent": int})
    sink = io.forward(uplink, tmp_path / "log", bytes="20 kB", full="drop lowest", priority="urgent")
    flow = Flow("f")
    records = [{"n": n, "urgent": int(n % 100 == 0)} for n in range(5000)]
    flow.read("in", io.Items(records, schema)).write("out", sink)
    account = engine.run(flow).to_json()["sinks"]["out"]
    assert account["dropped"]["log full"] + account["waiting"] == 5000
    uplink.up = True
    flow = Flow("f")
    flow.read("in", io.Items([], schema)).write("out", sink)
    engine.run(flow)
    assert set(range(0, 5000, 100)) <= set(uplink.arrived)
    assert len(uplink.arrived) == account["waiting"]


def test_what_is_too_old_is_not_sent_and_counted(tmp_path):
    uplink = Uplink(up=False)
    run(io.forward(uplink, tmp_path / "log", age="1 day"), 100)
    uplink.up = True
    account = run(io.forward(uplink, tmp_path / "log", age="1 us"), 0).to_json()["sinks"]["out"]
    assert uplink.arrived == []
    assert account["dropped"] == {"too old": 100}


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_a_full_log_holds_up_neither_another_pipeline_nor_checkpoints(on, tmp_path, caplog):
    uplink = Uplink(up=False)
    sink = io.forward(uplink, tmp_path / "log", bytes="2 MB")
    read = check_nothing_else_is_held(sink, uplink, tmp_path, caplog, on=on)
    assert uplink.arrived == read


def test_a_full_log_that_holds_lets_go_of_what_is_too_old(tmp_path, caplog):
    uplink = Uplink(up=False)
    flow = Flow("f")
    numbers = io.Generate(lambda n: {"n": n}, SCHEMA, rate=50_000)
    flow.read("in", numbers).write("out", io.forward(uplink, tmp_path / "log", bytes="200 kB", age="300 ms"))
    run = engine.start(flow, queue_records=500)
    try:
        wait_until(lambda: "the flow is held" in caplog.text)
        held_at = run.sample().records_in
        wait_until(lambda: run.sample().records_in > 2 * held_at)
    finally:
        run.stop()
        report = run.wait()
    account = report.to_json()["sinks"]["out"]
    assert account["dropped"]["too old"] > 0
    assert account["dropped"]["too old"] + account["waiting"] == report.last.records_in


def test_what_was_stored_before_the_clock_was_set_is_not_too_old(tmp_path):
    """A device without a battery begins in 1970, and has a good clock when it is started again."""
    boot = Log(tmp_path / "log", clock=lambda: 90 * 10**9)
    boot.append(pack(numbers(1, 2, 3)), records=3)
    boot.close()
    uplink = Uplink()
    account = run(io.forward(uplink, tmp_path / "log", age="1 day"), 0).to_json()["sinks"]["out"]
    assert uplink.arrived == [1, 2, 3]
    assert account["dropped"] == {}


def test_records_that_cannot_be_stored_are_dead_letters_and_those_the_sink_refuses_are_kept(tmp_path, caplog):
    flow, letters = Flow("f"), io.Collect()
    rows = [{"n": n, "extra": object() if n == 3 else {"n": n} if n != 5 else 1j} for n in range(10)]
    sink = io.forward(io.JsonLines(tmp_path / "out.jsonl"), tmp_path / "log")
    flow.read("in", io.Items(rows, {"n": int, "extra": object})).write("out", sink)
    flow.dead_letters.write("letters", letters)
    report = engine.run(flow)
    arrived = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert arrived == [0, 1, 2, 4, 6, 7, 8, 9]
    assert [letter["step"] for letter in letters.records] == ["out"]
    account = report.to_json()["sinks"]["out"]
    assert (account["forwarded"], account["refused"], account["waiting"]) == (8, 1, 0)
    (kept,) = DeadLetterFolder(tmp_path / "log" / "refused").letters()
    assert "JSON" in kept.error
    assert kept.record == "{'n': 5, 'extra': 1j}"
    assert "refuses 1 records" in caplog.text


def forwarded_to(uplink, folder):
    """Have two records forwarded; return the writer behind them."""
    writer = io.forward(uplink, folder).open(SCHEMA)
    writer.write(numbers(1, 2))
    wait_until(lambda: uplink.arrived == [1, 2])
    writer.close()
    return writer


def test_a_sink_that_raises_what_no_sink_should_is_tried_again(tmp_path, caplog):
    class Odd(Uplink):
        def write(self, batch):
            if self.opened < 3:
                raise ZeroDivisionError("odd")
            super().write(batch)

    forwarded_to(Odd(), tmp_path)
    assert "ZeroDivisionError: odd" in caplog.text


class Slipping(Uplink):
    """A sink whose own code breaks at the number 3, as one does that looks something up."""

    remote = True
    all_or_none = True

    def write(self, batch):
        self.slip(batch["n"].tolist())
        return super().write(batch)

    def slip(self, numbers):
        return {}["three"] if 3 in numbers else None


@pytest.fixture
def at_once(monkeypatch):
    """Attempts follow each other without long pauses."""
    monkeypatch.setattr(sender, "_FIRST_S", 0.001)


def kept_apart(folder):
    """Return the records that are set apart, with why."""
    return [(json.loads(each.record)["n"], each.error) for each in DeadLetterFolder(folder / "refused").letters()]


def test_records_at_which_a_sinks_own_code_breaks_are_set_apart_and_the_others_pass(tmp_path, caplog, at_once):
    uplink = Slipping()
    writer = io.forward(uplink, tmp_path).open(SCHEMA)
    for n in range(6):
        writer.write(numbers(n))
        writer.flush()  # an entry each
    wait_until(lambda: uplink.arrived == [0, 1, 2, 4, 5])
    writer.close()
    account = writer.account()
    assert (account["forwarded"], account["refused"], account["waiting"]) == (5, 1, 0)
    assert account["mistakes"] == account["failed_attempts"] == 5
    ((number, why),) = kept_apart(tmp_path)
    assert number == 3
    assert why.startswith("KeyError: 'three' (test_forward.py:")
    assert (
        "sink uplink breaks by its own code, which waiting does not mend: KeyError: 'three' (test_forward.py:"
        in caplog.text
    )


@pytest.mark.parametrize("all_or_none", [True, False])
def test_a_sink_of_all_or_none_loses_the_very_record_to_a_slip_and_another_its_whole_batch(
    tmp_path, all_or_none, at_once
):
    uplink = Slipping()
    uplink.all_or_none = all_or_none
    account = run(io.forward(uplink, tmp_path / "log"), 8, chunk=8).extra["sinks"]["out"]
    apart = [number for number, _ in kept_apart(tmp_path / "log")]
    assert apart == ([3] if all_or_none else list(range(8)))
    assert sorted([*uplink.arrived, *apart]) == list(range(8))
    assert (account["refused"], account["waiting"]) == (len(apart), 0)


def test_a_slip_while_records_are_flushed_sets_those_apart_that_were_gathered(tmp_path, at_once):
    class Flushing(Slipping):
        def write(self, batch):
            self.gathered += batch["n"].tolist()

        def _flush(self):
            self.slip(self.gathered)
            super()._flush()

    uplink = Flushing(gathers=True)
    writer = io.forward(uplink, tmp_path).open(SCHEMA)
    writer.write(numbers(1, 2, 3))
    wait_until(lambda: writer.account()["refused"] == 3)
    writer.write(numbers(4))
    wait_until(lambda: uplink.arrived == [4])
    writer.close()
    assert [number for number, _ in kept_apart(tmp_path)] == [1, 2, 3]


def test_a_sink_whose_own_code_cannot_open_it_loses_nothing_and_gets_it_all_once_it_is_mended(
    tmp_path, caplog, at_once
):
    class Misspelt(Uplink):
        def open(self, schema):
            return {}["connection"]

    writer = io.forward(Misspelt(), tmp_path).open(SCHEMA)
    writer.write(numbers(1, 2))
    wait_until(lambda: writer.account().get("mistakes", 0) > 7)
    writer.close()
    account = writer.account()
    assert (account["refused"], account["waiting"], account["forwarded"]) == (0, 2, 0)
    assert "breaks by its own code" in caplog.text
    uplink = Uplink()
    io.forward(uplink, tmp_path).open(SCHEMA).close()
    assert uplink.arrived == [1, 2]


def test_what_nobody_knows_may_be_the_networks_doing_and_is_tried_for_as_long_as_it_takes(tmp_path, caplog, at_once):
    class ClientError(Exception):
        """As libraries have them."""

    class Foreign(Uplink):
        attempts = 0

        def write(self, batch):
            self.attempts += 1
            if self.attempts < 12:
                raise ClientError("no route")
            super().write(batch)

    account = forwarded_to(Foreign(), tmp_path).account()
    assert (account["refused"], account["failed_attempts"], "mistakes" in account) == (0, 11, False)
    assert "records for uplink wait on disk, and are tried again: ClientError: no route" in caplog.text


def test_a_run_with_a_checkpoint_ends_although_a_network_sink_breaks_by_its_own_code(tmp_path, at_once):
    uplink = Slipping()
    report = run(uplink, 100, checkpoint=tmp_path / "state")
    assert uplink.arrived == [n for n in range(100) if n != 3]
    account = report.extra["sinks"]["out"]
    assert (account["refused"], account["waiting"]) == (1, 0)
    assert "1 refused" in str(report)


def test_a_rate_bounds_how_fast_records_leave(tmp_path):
    uplink = Uplink()
    writer = io.forward(uplink, tmp_path, rate="100 B/s", linger="1 us").open(SCHEMA)
    for n in range(200):
        writer.write(numbers(n))
    writer.close()
    assert len(uplink.arrived) + writer.account()["waiting"] == 200
    assert writer.account()["waiting"] > 100


def test_two_runs_cannot_use_one_folder(tmp_path):
    writer = io.forward(Uplink(), tmp_path).open(SCHEMA)
    with pytest.raises(InputError, match="another run is writing it"):
        io.forward(Uplink(), tmp_path).open(SCHEMA)
    writer.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bytes": "many"}, "expected a number and a unit"),
        ({"bytes": "1 GB/s"}, "such as '1 GB'"),
        ({"rate": "1 MB"}, "such as '1 MB/s'"),
        ({"full": "drop newest"}, "full is one of"),
        ({"order": "new"}, "order is one of 'newest', 'oldest'"),
        ({"full": "drop lowest"}, "goes with priority="),
        ({"age": "7"}, "cannot read duration"),
    ],
)
def test_what_makes_no_sense_is_told_while_building(tmp_path, options, said):
    with pytest.raises(FlowError, match=said):
        io.forward(Uplink(), tmp_path, **options)


def test_a_priority_that_is_no_column_of_whole_numbers_is_told(tmp_path):
    sink = io.forward(Uplink(), tmp_path, full="drop lowest", priority="m")
    with pytest.raises(FlowError, match="there is no column 'm'"):
        sink.open(SCHEMA)
    with pytest.raises(FlowError, match="a column of whole numbers; 'm' is text"):
        sink.open(Schema.of({"m": str}))


# -- a process that is killed, and a server that is down ----------------------------------------------------------------

PROGRAM = """
import json, sys, urllib.request
from headwater import Flow, engine, io
from headwater.data.batch import Batch

class Web:
    "Posts each batch as JSON."
    def __init__(self, url): self.url = url
    def open(self, schema): return self
    def write(self, batch):
        body = json.dumps(batch["n"].tolist()).encode()
        urllib.request.urlopen(urllib.request.Request(self.url, body), timeout=60).close()
    def close(self): pass

url, folder, first, count, rate = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
flow = Flow("killed")
made = io.Generate(lambda numbers: {"n": numbers + first}, {"n": int}, rate=rate, count=count)
flow.read("in", made).write("out", io.forward(Web(url), folder, linger="30 s"))
run = engine.start(flow)
print("started", flush=True)
run.wait()
print("ended", flush=True)
"""


class Server:
    """A web server that keeps the numbers posted to it."""

    def __init__(self, port):
        self.arrived = arrived = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                arrived.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *said):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def start(port, folder, first, count, rate):
    url = f"http://127.0.0.1:{port}/"
    given = [sys.executable, "-c", PROGRAM, url, str(folder), str(first), str(count), str(rate)]
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout.readline() == "started\n"
    return process


def in_log(folder):
    reader, found = Reader(folder), []
    while entries := reader.read():
        found += [n for entry in entries for n in unpack_frame(entry.data)["n"].tolist()]
    return found


def test_all_arrives_though_the_process_is_killed_while_the_server_is_down(tmp_path):
    port = free_port()
    process = start(port, tmp_path, 0, 10**6, 5000)
    wait_until(lambda: len(in_log(tmp_path)) > 2000)  # what a power cut would leave
    process.send_signal(signal.SIGKILL)
    process.communicate()
    written = in_log(tmp_path)
    assert written == list(range(len(written)))
    server = Server(port)
    process = start(port, tmp_path, 10**7, 100, 10**6)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "ended\n", err
    server.close()
    beyond = [n for n in server.arrived if len(written) <= n < 10**7]  # in the log, not yet known to be safe
    assert beyond == list(range(len(written), len(written) + len(beyond)))
    assert server.arrived == [*written, *beyond, *range(10**7, 10**7 + 100)]


def test_all_arrives_though_the_process_is_killed_while_it_sends(tmp_path):
    server = Server(free_port())
    process = start(server.port, tmp_path, 0, 10**6, 20_000)
    wait_until(lambda: len(server.arrived) > 3000)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    process = start(server.port, tmp_path, 10**7, 100, 10**6)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "ended\n", err
    server.close()
    first = [n for n in server.arrived if n < 10**7]
    assert sorted(set(first)) == list(range(max(first) + 1))
    assert len(first) - len(set(first)) < 20_000  # some come twice, and not many
    assert server.arrived[-100:] == list(range(10**7, 10**7 + 100))


def test_what_a_sink_refuses_while_it_cannot_take_the_rest_is_refused_once_however_many_runs_that_takes(tmp_path):
    class Choosy(Uplink):
        def open(self, schema):
            return self  # as a client does that connects later

        def write(self, batch):
            refused = {row: "odd" for row, n in enumerate(batch["n"].tolist()) if n % 2}
            self.gathered += [n for n in batch["n"].tolist() if n % 2 == 0]
            return refused

    uplink = Choosy(up=False, gathers=True)
    for count in (10, 0, 0):
        account = run(io.forward(uplink, tmp_path / "log", linger="200 ms"), count).extra["sinks"]["out"]
        assert (account["refused"], account["waiting"]) == (0, 10)
    uplink.up = True
    account = run(io.forward(uplink, tmp_path / "log"), 0).extra["sinks"]["out"]
    assert (account["refused"], account["forwarded"], account["waiting"]) == (5, 5, 0)
    assert len(kept_apart(tmp_path / "log")) == 5
    assert uplink.arrived == [0, 2, 4, 6, 8]
