"""However a run ends, it ends: a step that exits, a step that hangs, an interrupt; and what it had done is told."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headwater
from headwater import Batch, Flow, col, engine, io
from headwater.errors import RunError
from headwater.operators import Operator
from waiting import PATIENCE_S

RUNNERS = ["engine", "threads"]
NUMBERS = io.Items([{"n": n} for n in range(1000)])


def numbers(step, *, before=False):
    """Return a flow in which `step` is given each record; `before` puts cheap steps there, which run inline."""
    flow = Flow("numbers")
    stream = flow.read("r", NUMBERS)
    if before:
        stream = stream.filter("all", col.n >= 0).filter("all again", col.n >= 0)
    stream.map("step", step).write("w", io.Discard())
    return flow


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_a_step_that_exits_ends_the_run_with_that_reason(on, before, end):
    def step(record):
        if record["n"] == 700:
            raise end
        return record

    with pytest.raises(RunError, match=rf"step 'step' ended the run: {type(end).__name__}") as raised:
        engine.run(numbers(step, before=before), on=on, chunk=50)
    report = raised.value.report
    assert raised.value.step == "step"
    assert report.error == str(raised.value)
    assert report.left > 0
    assert report.last.records_in == report.left + report.last.records_out["w"]


@pytest.mark.parametrize("on", RUNNERS)
def test_a_source_that_exits_ends_the_run_with_that_reason(on):
    class Exits:
        schema = NUMBERS.schema

        def open(self, reject):
            return self

        def read(self, limit, timeout_s):
            sys.exit("enough")

        def close(self):
            pass

    flow = Flow("exits")
    flow.read("r", Exits()).write("w", io.Discard())
    with pytest.raises(RunError, match="source 'r' ended the run: SystemExit: enough"):
        engine.run(flow, on=on)


@pytest.mark.parametrize("on", RUNNERS)
def test_a_run_that_ends_in_an_error_still_tells_what_it_did(on):
    class Breaks:
        schema = NUMBERS.schema
        given = 0

        def open(self, reject):
            return self

        def read(self, limit, timeout_s):
            self.given += 100
            if self.given > 500:
                raise OSError("the wire is cut")
            return Batch.of({"n": list(range(100))}, self.schema)

        def close(self):
            pass

    flow = Flow("breaks")
    flow.read("sensor", Breaks()).write("w", io.Discard())
    with pytest.raises(RunError, match="the wire is cut") as raised:
        engine.run(flow, on=on)
    assert raised.value.report.last.records_in == 500
    assert "the wire is cut" in raised.value.report.to_json()["error"]


class Closing(Operator):
    """Passes records on, and does something when it is closed."""

    def __init__(self, close):
        self._close = close

    def process(self, batch, port):
        return batch

    def close(self):
        self._close()


@pytest.mark.parametrize("on", RUNNERS)
def test_a_step_that_hangs_when_it_is_closed_is_named_and_left_behind(on):
    closing, never = threading.Event(), threading.Event()

    def hang():
        closing.set()
        never.wait(PATIENCE_S)

    flow = Flow("closing")
    flow.read("r", NUMBERS).apply("slow", lambda: Closing(hang)).write("w", io.Discard())
    running = engine.start(flow, on=on, grace_s=0.2)
    threading.Thread(target=lambda: (closing.wait(PATIENCE_S), running.abort())).start()
    with pytest.raises(RunError, match=r"step 'slow' did not finish closing within 0\.2 s") as raised:
        running.wait()
    assert raised.value.report.last.records_out["w"] == raised.value.report.last.records_in
    never.set()


@pytest.mark.parametrize(
    ("end", "said"), [(SystemExit(), "SystemExit"), (MemoryError(), "MemoryError"), (OSError("no"), "no")]
)
def test_what_ends_closing_is_told(end, said):
    def fail():
        raise end

    flow = Flow("closing")
    flow.read("r", NUMBERS).apply("broken", lambda: Closing(fail)).write("w", io.Discard())
    with pytest.raises(RunError, match=f"step 'broken' could not finish: {said}$"):
        engine.run(flow)


@pytest.mark.parametrize("on", RUNNERS)
def test_a_step_that_hangs_is_named_and_the_run_is_over_without_it(on):
    released, inside = threading.Event(), threading.Event()

    class Hangs(Operator):
        def process(self, batch, port):
            inside.set()
            released.wait()
            return batch

    flow = Flow("hangs")
    flow.read("r", NUMBERS).apply("stuck", Hangs).write("w", io.Discard())
    run = engine.start(flow, on=on, grace_s=0.2)
    assert inside.wait(PATIENCE_S)
    run.stop()
    assert run.wait(0.05) is None
    run.abort()
    with pytest.raises(RunError, match=r"step 'stuck' did not come back within 0\.2 s") as raised:
        run.wait()
    report = raised.value.report
    assert report.left == report.last.records_in > 0
    released.set()


@pytest.mark.parametrize("on", RUNNERS)
def test_a_step_that_has_been_at_it_for_long_is_spoken_of(on, caplog):
    released = threading.Event()

    class Slow(Operator):
        def process(self, batch, port):
            released.wait()
            return batch

    flow = Flow("slow")
    flow.read("r", NUMBERS).apply("slow", Slow).write("w", io.Discard())
    run = engine.start(flow, on=on, hang="50 ms")
    pause = threading.Event()
    for _ in range(6000):
        if "step slow has been at the same" in caplog.text:
            break
        pause.wait(0.01)
    released.set()
    run.wait()
    assert caplog.text.count("step slow has been at the same") == 1


@pytest.mark.parametrize("on", RUNNERS)
def test_a_step_that_hangs_may_end_the_run(on):
    released = threading.Event()

    def stuck(record):
        released.wait(PATIENCE_S)
        return record

    with pytest.raises(
        RunError, match=r"step 'step' has been at the same \d+ records for .* s, and on_hang is 'stop'"
    ) as raised:
        engine.run(numbers(stuck), on=on, hang="50 ms", on_hang="stop", grace_s=0.1)
    assert raised.value.step == "step"
    assert raised.value.report.left == raised.value.report.last.records_in > 0
    released.set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hang": "0 s"}, "hang is how long a step may be at the same records, above 0; got '0 s'"),
        ({"on_hang": "stopp"}, "on_hang must be one of 'stop', 'warn'; got 'stopp'; did you mean 'stop'"),
    ],
)
def test_wrong_options_of_hanging_are_told(options, said):
    with pytest.raises(RunError, match=said):
        engine.run(numbers(lambda record: record), **options)


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have shut it out
from headwater import Flow, engine, io

sent = []

def step(record):
    if not sent:
        sent.append(True)
        os.kill(os.getpid(), signal.SIGINT)
    return record

flow = Flow("interrupted")
flow.read("r", io.Generate(lambda n: {"n": n}, {"n": int}, rate=1000)).map("step", step).write("w", io.Discard())
try:
    engine.run(flow, on=sys.argv[1], seconds=60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("on", RUNNERS)
def test_an_interrupt_of_a_script_ends_its_run(on):
    # in a process of its own: what an interrupt does to one that runs tests is not ours to say
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, on], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout.split()[:1] == ["interrupted"], ended.stderr


HANGS = {
    "waits": "threading.Event().wait()",
    "sleeps": "time.sleep(3600)",
    "keeps the interpreter to itself": 're.match("(a*)*b", "a" * 40)',  # in C, for longer than anybody lives
}
HANGING = """
import re, sys, threading, time, traceback
from headwater import Flow, io
from headwater.cli.run import _wait

def started():
    frame = sys._current_frames()[threading.main_thread().ident]
    return any(each.name == _wait.__name__ for each in traceback.extract_stack(frame))

def stuck(record):
    while not started():  # the command has not begun to wait for the run
        time.sleep(0.01)
    print("inside", flush=True)
    HANG

flow = Flow("hanging")
flow.read("r", io.Items([{"n": n} for n in range(100)])).map("stuck", stuck).write("out", io.Discard())
"""


def hanging(folder, on, how):
    """Start a command whose step hangs, and return it once the step does."""
    (folder / "hanging.py").write_text(HANGING.replace("HANG\n", HANGS[how] + "\n"))
    main = "from headwater.cli import main; main()"
    command = [sys.executable, "-c", main, "run", "hanging.py", "--on", on, "--json"]
    environment = os.environ | {"PYTHONPATH": str(Path(headwater.__file__).parent.parent)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def waits(process, number):
    """Say whether a signal has come to a process that has not heard it yet."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return False
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in pending)


@pytest.mark.parametrize("on", RUNNERS)
def test_three_signals_end_a_command_whose_step_keeps_the_interpreter_to_itself(on, tmp_path):
    process = hanging(tmp_path, on, "keeps the interpreter to itself")
    try:
        assert process.stderr.readline() == "inside\n"  # its standard output is the document of --json
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            while waits(process, signal.SIGINT):  # the system makes one of two that come at once
                time.sleep(0.01)
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGINT)


@pytest.mark.parametrize(
    ("on", "how", "signals"),
    [
        ("engine", "waits", [signal.SIGINT] * 3),
        ("threads", "sleeps", [signal.SIGTERM] * 3),
        ("engine", "sleeps", [signal.SIGTERM, signal.SIGINT]),
    ],
)
def test_signals_end_a_command_whose_step_hangs(on, how, signals, tmp_path):
    process = hanging(tmp_path, on, how)
    try:
        assert process.stderr.readline() == "inside\n"  # its standard output is the document of --json
        said = []
        for number in signals:
            process.send_signal(number)
            if len(said) < 2:  # the third leaves without a word
                said.append(process.stderr.readline())
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert "draining" in said[0]
    assert "stopping now" in said[1]
    if len(signals) == 3:
        assert process.returncode == 128 + signals[-1]
    else:
        assert process.returncode == 1
        assert "step 'stuck' did not come back" in err
        assert json.loads(out)["left"] == 100
