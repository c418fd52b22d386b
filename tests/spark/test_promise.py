"""A promise on Spark: an application of its own with whole cores of the machine's ledger, capped and judged in seconds."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater import Contract, Flow, Profile, StepProfile, io
from headwater.cli import add_commands, app
from headwater.errors import RateError, RunError
from headwater.flow.profile import Demand, StepDemand
from headwater.processes import family
from headwater.rate.application import Application
from headwater.rate.client import Client, board
from headwater.rate.grade import Grade
from headwater.rate.supervisor import Supervisor
from supervisors import end_supervisor
from waiting import PATIENCE_S

RATE_HZ = 200


def profile(cores: float) -> Profile:
    """A profile by which 200/s want about so many cores."""
    steps = {"numbers": StepDemand(1.0, 1, 1.0, 0.001, cores / 1.4 / RATE_HZ, 0.0)}
    return Profile("counting", "here", {"numbers": StepProfile(0.0)}, demand=Demand(RATE_HZ, 0.02, 0.0, steps))


@pytest.fixture
def home(tmp_path):
    """A runtime folder; its supervisor is gone after the test."""
    yield tmp_path / "run"
    end_supervisor(tmp_path / "run")


@pytest.fixture
def no_java(monkeypatch):
    """Let a command that would run on Spark start no Java ahead: nobody ends it, nor what makes its archive of classes."""
    monkeypatch.setattr("headwater.spark.session.prepare", lambda master, settings: None)


def counting() -> Flow:
    flow = Flow("counting")
    flow.read("numbers", io.Generate(lambda n: {"n": n}, {"n": int}, rate=RATE_HZ)).write("out", io.Discard())
    return flow


def test_it_holds_whole_cores_of_the_same_ledger(home):
    client = Client(home)
    held = Application(counting(), Contract(RATE_HZ, 5.0), profile=profile(0.3), best_effort=True, client=client)
    assert held.cores == 1
    lane = board(home).lanes[0]
    assert (lane.cores, lane.lanes, lane.flow) == (1.0, 0, "counting")
    with pytest.raises(RateError, match=r"it wants 64\.00 cores, and .* are left; held by counting 1\.00"):
        Application(counting(), Contract(RATE_HZ, 5.0), profile=profile(63.5), best_effort=True, client=client)
    client.close()


def test_the_rate_that_is_offered_fits_into_the_whole_cores_that_are_left(tmp_path):
    class Ledgered:
        """A supervisor of so many cores, in this process."""

        def __init__(self, cores):
            self.supervisor = Supervisor(tmp_path, Grade("shared", "for a test"), cores=cores)

        def say(self, message):
            return self.supervisor.answer(message, os.getpid())

    asked = Contract(RATE_HZ, 5.0)
    for cores, whole in ((3.0, 2), (1.0, 0)):  # of which 2.7 and 0.9 may be promised
        line = Ledgered(cores)
        with pytest.raises(RateError, match=r"it wants 4\.00 cores") as refused:
            Application(counting(), asked, profile=profile(3.5), best_effort=True, client=line)
        offered = re.search(r"what would fit: ([\d.]+/s)", str(refused.value))
        if not whole:
            assert "no rate would fit" in str(refused.value)
            continue
        held = Application(
            counting(), Contract.of(offered[1], "5 s"), profile=profile(3.5), best_effort=True, client=line
        )
        assert held.cores == whole


def test_what_is_held_is_let_go_where_spark_does_not_start(home):
    client = Client(home)
    held = Application(counting(), Contract(RATE_HZ, 5.0), profile=profile(0.3), best_effort=True, client=client)

    def fails():
        raise OSError("no Java")

    with pytest.raises(OSError, match="no Java"):
        held.started(fails)
    assert board(home).lanes == []
    client.close()


def test_a_micro_batch_begins_four_times_within_the_latency_and_has_twice_what_comes_meanwhile(home):
    client = Client(home)
    for latency_s, batch_s in ((2.0, 0.5), (20.0, 1.0), (None, 1.0)):
        asked = Contract(RATE_HZ, latency_s)
        held = Application(counting(), asked, profile=profile(0.01), best_effort=True, client=client)
        assert (held.batch_s, held.batch_records) == (batch_s, 2 * RATE_HZ * batch_s)
        with pytest.raises(OSError, match="enough"):
            held.started(lambda: (_ for _ in ()).throw(OSError("enough")))
    client.close()


def test_it_is_promised_seconds_and_not_milliseconds(home, tmp_path):
    with pytest.raises(RateError, match=r"cannot be promised 200/s within 50 ms by an application .* 1 s or more"):
        Application(counting(), Contract(RATE_HZ, 0.05), profile=profile(0.3), client=Client(home))
    add_commands()
    (tmp_path / "counting.py").write_text(
        "from headwater import Flow, io\nflow = Flow('counting')\n"
        "flow.read('a', io.Items([{'x': 1}])).write('out', io.Discard())\n"
    )
    asked = ["run", str(tmp_path / "counting.py"), "--on", "spark", "--promise", "5/s", "--within"]
    environment = {"HEADWATER_RUNTIME": str(home)}
    refused = CliRunner().invoke(app, [*asked, "50ms"], env=environment)
    assert "promised 1 s or more" in str(refused.exception)
    elsewhere = CliRunner().invoke(app, [*asked, "5s", "--master", "spark://x:1"], env=environment)
    assert "--master means nothing with a promise" in str(elsewhere.exception)


@pytest.mark.parametrize("above", ["shed", "block"])
def test_what_is_above_the_rate_is_neither_shed_nor_left_unread(home, tmp_path, monkeypatch, no_java, above):
    with pytest.raises(RateError, match=f"what is above the rate is best effort there, and not '{above}'"):
        Application(counting(), Contract(RATE_HZ, 5.0, above=above), profile=profile(0.3), client=Client(home))
    (tmp_path / "counting.py").write_text(
        "from headwater import Flow, io\nflow = Flow('counting')\n"
        "flow.read('a', io.Items([{'x': 1}])).write('out', io.Discard())\n"
        f"flow.contract('5/s', '5 s', above={above!r})\n"
    )
    did = []

    def start(flow, **options):
        did.append("started without")
        raise RunError("that is all")

    monkeypatch.setattr("headwater.spark.start", start)
    add_commands()
    command = ["run", str(tmp_path / "counting.py"), "--on", "spark"]
    ran = CliRunner().invoke(app, command, env={"HEADWATER_RUNTIME": str(home)})
    assert "has a contract, which --on spark does not keep" in " ".join(ran.output.split())
    assert did == ["started without"]
    asked = [*command, "--promise", "5/s", "--within", "5s", "--above", above]
    refused = CliRunner().invoke(app, asked, env={"HEADWATER_RUNTIME": str(home)})
    assert "is best effort there" in str(refused.exception)


@pytest.mark.parametrize("options", [(), ("--backfill", "a=table", "--checkpoint", "kept")], ids=["stream", "history"])
def test_a_flow_on_spark_without_a_promise_gives_way_to_those_that_have_one(tmp_path, monkeypatch, no_java, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting.py").write_text(
        "from headwater import Flow, io\nflow = Flow('counting')\n"
        "flow.read('a', io.Items([{'x': 1}])).write('out', io.Discard())\n"
    )
    did = []

    def start(flow, *tables, **options):
        did.append("started")
        raise RunError("that is all")

    monkeypatch.setattr("headwater.cli.promise.GivingWay.begin", lambda self: did.append("gave way"))
    monkeypatch.setattr("headwater.spark.start", start)
    monkeypatch.setattr("headwater.spark.start_backfill", start)
    add_commands()
    CliRunner().invoke(app, ["run", str(tmp_path / "counting.py"), "--on", "spark", *options])
    assert did == ["gave way", "started"]  # before Java is started, which inherits it


@pytest.mark.spark
def test_the_command_promises_runs_on_cores_of_its_own_and_proves_it(home, tmp_path):
    profile(0.3).write(tmp_path / "p.json")
    (tmp_path / "counting.py").write_text(
        "from headwater import Flow, io\nflow = Flow('counting')\n"
        f"made = io.Generate(lambda n: {{'n': n}}, {{'n': int}}, rate={RATE_HZ}, count={10 * RATE_HZ})\n"
        "flow.read('numbers', made).write('out', io.JsonLines('out.jsonl'))\n"
    )
    command = [sys.executable, "-m", "headwater", "run", "counting.py", "--on", "spark", "--promise", f"{RATE_HZ}/s"]
    running = subprocess.Popen(
        [*command, "--within", "10s", "--profile", "p.json", "--best-effort", "--json"],
        cwd=tmp_path,
        env={**os.environ, "HEADWATER_RUNTIME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + PATIENCE_S
        while running.poll() is None and not _protects_java(home, running.pid):
            assert time.monotonic() < end
            time.sleep(0.05)
        protected = running.poll() is None
        out, err = running.communicate(timeout=240)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0, err
    assert protected
    assert "is promised 200/s within 10 s: 1 cores reserved for Spark (an estimate, without a trial: the 0." in err
    report = json.loads(out)
    assert report["promise"]["reserved_cores"] == 1.0
    assert report["promise"]["windows"] >= 1
    written = sorted(json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert written == list(range(10 * RATE_HZ))
    assert board(home).lanes == []


def _protects_java(home, pid) -> bool:
    """Say whether Java is at work for a process, in the group that the supervisor has made for it, if it can make any."""
    found = board(home)
    if found is None or not found.lanes:
        return False
    for each in family(pid):
        with suppress(OSError):  # it may have ended
            if Path(f"/proc/{each}/comm").read_text().strip() == "java":
                group = Path(f"/proc/{each}/cgroup").read_text()
                return found.grade != "reserved" or f"headwater.{found.lanes[0].id}" in group
    return False
