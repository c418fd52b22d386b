"""A lap: one flow under one system at one rate, in a process of its own, judged second by second.

The process says that it is ready once records come out, waits for the word to go, measures, and says what it saw.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from headwater.clock import now_ns
from headwater.errors import RateError, RunError
from headwater.rate.client import connected
from headwater.rate.fork_context import KeptBy
from headwater.rate.forks import forked
from headwater.rate.grade import grade_here
from headwater.rate.peer import peer
from headwater.rate.process import began
from headwater.rate.trial import TRIAL_S
from headwater_bench.experiments.rates import quota

SYSTEMS = ("promised", "unprotected", "longest_queue", "threads", "dhalion", "serverless")
BOUND_S = 0.05
_READY_S = 90.0  #: how long a process may take until records come out
_LONGEST_S = 120.0  #: how much longer than it should a process may take: a machine may be very busy, but nothing hangs
_GONE_S = 10.0  #: how long a supervisor may take to go home
_AFTER_S = 0.2  #: how long after the last record's bound a lap ends


class Lap(msgspec.Struct, frozen=True):
    """What a process is to run."""

    flow: str
    system: str
    rates: list[tuple[float, float]]  #: from when on, which rate; in seconds since the first record
    seconds: int
    warm_s: float = 1.0
    bound_s: float = BOUND_S
    promise_hz: float | None = None  #: the highest rate unless said
    profile: str | None = None
    forced: bool = False  #: whether it runs without a promise where it is refused one
    trial_s: float = TRIAL_S
    settings: dict[str, float | str] = {}

    @property
    def promised_hz(self) -> float:
        """The rate of its contract."""
        return self.promise_hz or max(rate_hz for _, rate_hz in self.rates)


def forced_group(pid: int) -> str:
    """Return the name of the group of a lane that was forced in."""
    return f"forced-{pid}"


class RefusedError(RunError):
    """A lap whose promise was refused."""


class Started:
    """A lap's process, as the one that started it sees it: forked from a warm parent if it is a lane, else a new one."""

    def __init__(self, lap: Lap, home: Path) -> None:
        self.lap = lap
        self.began_s = time.monotonic()
        self.parts_s: dict[str, float] = {}  #: what the time until it was ready went to
        self._log = (home / f"said-{os.urandom(4).hex()}").open("w+")
        hears, tells = os.pipe()
        reads, writes = os.pipe()
        self._in, self._out = os.fdopen(tells, "wb"), os.fdopen(reads, "rb")
        start = _forked if lap.system == "promised" and not lap.forced else _new
        try:
            self.pid, self._wait = start(msgspec.json.encode(lap).decode(), home, (hears, writes, self._log.fileno()))
        finally:
            os.close(hears)
            os.close(writes)
        self._limit = threading.Timer(_READY_S + _LONGEST_S + lap.warm_s + lap.seconds, self._kill)
        self._limit.daemon = True
        self._limit.start()

    def ready(self) -> float:
        """Wait until records come out, and return how long that took."""
        line = self._out.readline()
        if line.startswith(b"refused"):
            raise RefusedError(line.decode().partition(" ")[2].strip())
        if not line.startswith(b"ready "):
            raise self._broken(line)
        moments = msgspec.json.decode(line.partition(b" ")[2], type=dict[str, float])
        starts = (self.began_s, *moments.values())
        self.parts_s = {what: round(s - was, 4) for (what, s), was in zip(moments.items(), starts, strict=False)}
        return time.monotonic() - self.began_s

    def refused(self) -> str | None:
        """Wait as `ready` does; return why it was refused, or None where it was not."""
        try:
            self.ready()
        except RefusedError as error:
            return str(error)
        return None

    def go(self) -> None:
        """Let it measure from now on."""
        with suppress(BrokenPipeError):  # which its last words explain
            self._in.write(b"go\n")
            self._in.flush()

    def result(self) -> dict[str, Any]:
        """Wait for what it saw."""
        line = self._out.readline()
        try:
            saw: dict[str, Any] = msgspec.json.decode(line)
        except msgspec.DecodeError:
            raise self._broken(line) from None
        self.end()
        return saw

    def end(self) -> None:
        """End it and all that it has started, whatever it does; once is enough."""
        if self._log.closed:
            return
        self._limit.cancel()
        self._kill()
        self._wait()
        with suppress(BrokenPipeError):
            self._in.close()
        self._out.close()
        self._log.close()
        if self.lap.forced:
            grade_here().release(forced_group(self.pid))
        if self.lap.settings.get("containers"):
            quota.remove(self.pid)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _broken(self, line: bytes) -> AssertionError:
        self._log.seek(0)
        return AssertionError(f"{self.lap.system} {self.lap.flow}: said {line!r}; {self._log.read()[-2000:]}")


def _new(lap: str, home: Path, fds: tuple[int, int, int]) -> tuple[int, Callable[[], Any]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater_bench.experiments.rates.lap", lap],
        env={**os.environ, "HEADWATER_RUNTIME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=fds[0],
        stdout=fds[1],
        stderr=fds[2],
        start_new_session=True,  # as SCAN has; and so that all that it has started can be ended with it
    )
    return process.pid, process.wait


def _forked(lap: str, home: Path, fds: tuple[int, int, int]) -> tuple[int, Callable[[], Any]]:
    program = "headwater_bench.experiments.rates.lap:main"
    process = forked(program, [lap], KeptBy(0), home, fds, {"HEADWATER_RUNTIME": str(home)})
    return process.pid, process.wait


@contextmanager
def home() -> Iterator[Path]:
    """A runtime folder with a ledger of its own, whose supervisor and warm parent go home afterwards."""
    with tempfile.TemporaryDirectory(prefix="headwater-rates-") as name:
        try:
            yield Path(name)
        finally:
            for each in Path(name).glob("lanes-*.sock"):
                each.unlink(missing_ok=True)
            line = connected(Path(name))
            if line is not None:
                with line:
                    pid, _ = peer(line)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                until_s = time.monotonic() + _GONE_S
                while began(pid) is not None and time.monotonic() < until_s:  # it writes its ledger once more
                    time.sleep(0.01)


@contextmanager
def started(laps: Sequence[Lap], at: Path) -> Iterator[list[Started]]:
    """Start laps side by side and wait until all are ready; afterwards all are gone."""
    processes: list[Started] = []
    try:
        processes += [Started(lap, at) for lap in laps]
        yield processes
    finally:
        for each in processes:
            each.end()


def together(laps: Sequence[Lap], at: Path) -> list[dict[str, Any]]:
    """Run laps side by side, and return what each saw."""
    with started(laps, at) as processes:
        took = [each.ready() for each in processes]
        for each in processes:
            each.go()
        return [
            {**each.result(), "start_s": round(s, 3), "start_parts_s": each.parts_s}
            for each, s in zip(processes, took, strict=True)
        ]


def main() -> None:
    """Run the lap that the first argument describes."""
    moments = {"until it is in its process": time.monotonic()}
    lap = msgspec.json.decode(sys.argv[1].encode(), type=Lap)
    from headwater_bench.experiments.rates.loads import COPIES, Judge, Offered
    from headwater_bench.experiments.rates.systems import begin

    moments["until its modules are loaded"] = time.monotonic()
    source, judge = Offered(lap.rates), Judge()
    try:
        running = begin(lap, source, judge)
    except RateError as error:
        print(f"refused {error}", flush=True)
        return
    moments["until it is admitted and started"] = time.monotonic()
    if not judge.first.wait(_READY_S):
        raise RunError(f"{lap.system} {lap.flow}: nothing came out within {_READY_S:g} s")
    moments["until a record came out"] = time.monotonic()
    print(f"ready {msgspec.json.encode(moments).decode()}", flush=True)
    sys.stdin.readline()
    assert source.began_ns is not None
    from_ns = max(now_ns(), source.began_ns + round(lap.warm_s * 1e9))
    time.sleep(max(0.0, (from_ns - now_ns()) / 1e9))
    used_s = running.used_s()
    time.sleep(max(0.0, (from_ns - now_ns()) / 1e9 + lap.seconds))
    used = (running.used_s() - used_s) / lap.seconds
    time.sleep(lap.bound_s + _AFTER_S)
    verdict = judge.verdict(source, COPIES[lap.flow], from_ns, lap.seconds, lap.bound_s)
    account = running.account()
    for each in account.get("scaled", ()):
        each["at_s"] = round((each.pop("at_ns") - from_ns) / 1e9, 2)
    saw = {"flow": lap.flow, "system": lap.system, **verdict, "used_cores": round(used, 4), **account}
    print(msgspec.json.encode(saw).decode(), flush=True)
    running.abort()


if __name__ == "__main__":
    main()
