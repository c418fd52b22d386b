"""How fast a bridge between two processes is, encrypted; how late records are at a rate; and what a link that is cut costs.

The ends are those of a flow's parts, without a flow around them: what is measured is the crossing. The receiver looks at
every record that comes. The sender keeps what is not safe at the other end in memory or, for the cut, on disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.clock import now_ns
from headwater.data.batch import END, Batch
from headwater.deploy import Identity, Links, Outlet, Room, issue
from headwater.errors import RunError
from headwater_bench.bridges.records import BATCH, BRIDGE, RECEIVER, SCHEMA, SENDER, batches
from headwater_bench.experiments.rows import write_rows
from headwater_bench.servers.link import Link

_ROOM = 64 * 2**20  #: bytes that wait at the sender, before who makes records waits
_TICK_S = 0.001
_RECORDS, _QUICK_RECORDS = 10_000_000, 1_000_000  #: as fast as they go
_RATE, _CUT_RATE = 200_000, 20_000  #: records/s
_WAIT_S = 120.0  #: for the receiver to have all


def run(quick: bool = False, output: Path | None = None) -> dict[str, Any]:
    """Measure all three, each with a receiver of its own."""
    with tempfile.TemporaryDirectory(prefix="headwater-bridge-", dir=Path.cwd()) as folder:
        here = Path(folder)
        for name in (SENDER, RECEIVER):
            issue(here / "certificates", name)
        flat = _flat(here, _QUICK_RECORDS if quick else _RECORDS)
        paced = _paced(here, _RATE, 3 if quick else 20)
        cut = _cut(here, cut_s=3 if quick else 60, around_s=1 if quick else 5)
    parts = (flat, paced, cut)
    answer = {
        "encrypted": True,
        "batch": BATCH,
        "records_per_s": flat["records_per_s"],
        "rate": _RATE,
        "p50_ms": paced["p50_ms"],
        "p99_ms": paced["p99_ms"],
        "cut_s": cut["cut_s"],
        "cut_rate": _CUT_RATE,
        "memory_mb": cut["memory_mb"],
        "caught_up_per_s": cut["caught_up_per_s"],
        "link_per_s": cut["link_per_s"],
        **{what: sum(each[what] for each in parts) for what in ("records", "lost", "twice", "wrong")},
    }
    if output is not None:
        write_rows([answer], output / "bridge.csv")
    return answer


class _Trial:
    """A sender here, a receiver in a process of its own, and a link between them."""

    def __init__(self, here: Path, sent: int, folder: Path | None) -> None:
        certificates = here / "certificates"
        command = [sys.executable, "-m", "headwater_bench.bridges.receiving", str(certificates), str(sent)]
        self._receiver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._receiver.stdout is not None
        line = self._receiver.stdout.readline()
        if not line:
            raise RunError("the receiver of the bridge did not start")
        self.port = int(line)
        self.link: Link | None = None
        self._links = Links(client=Identity.of(certificates, SENDER).client())
        self._options: dict[str, Any] = {
            "folder": folder,
            "room": Room(_ROOM if folder is None else 10**10),
            "linger_s": _WAIT_S,
        }
        self.share = 0.0

    def open(self, link: Link | None = None) -> None:
        """Begin to send, straight or over a link."""
        self.link, at = link, (self.port if link is None else link.port)
        outlet = Outlet(BRIDGE, self._links, ("127.0.0.1", at), peer=RECEIVER, **self._options)
        self._writer = outlet.open(SCHEMA)
        self._writer.throttle = self._heed

    def _heed(self, share: float) -> None:
        self.share = share

    def send(self, batch: Batch) -> None:
        """Send a batch, once there is room for it."""
        while self.share > 0.5:
            time.sleep(0.0005)
        self._writer.write(batch)

    @property
    def waiting(self) -> int:
        """Messages that the receiver does not have for good."""
        return int(self._writer.account()["messages_waiting"])

    def finish(self) -> dict[str, Any]:
        """End the stream, and return what the receiver has to say of it."""
        self._writer.advance(END)
        self._writer.close()
        assert self._receiver.stdout is not None
        answer: dict[str, Any] = json.loads(self._receiver.stdout.readline())
        return answer

    def close(self) -> None:
        """Leave nothing behind."""
        self._links.close()
        if self.link is not None:
            self.link.close()
        self._receiver.kill()
        self._receiver.wait()
        assert self._receiver.stdout is not None
        self._receiver.stdout.close()


@contextmanager
def _trial(here: Path, sent: int, folder: Path | None = None) -> Iterator[_Trial]:
    trial = _Trial(here, sent, folder)
    try:
        yield trial
    finally:
        trial.close()


def _flat(here: Path, count: int) -> dict[str, Any]:
    """Send as fast as it goes."""
    with _trial(here, count) as trial:
        trial.open()
        began_s = time.monotonic()
        for batch in batches(count):
            trial.send(batch)
        figures = trial.finish()
    return {**figures, "records_per_s": round(count / (figures["last_s"] - began_s))}


def _paced(here: Path, rate: int, seconds: float) -> dict[str, Any]:
    """Send at a rate."""
    count = int(rate * seconds)
    with _trial(here, count) as trial:
        trial.open()
        _send_at(rate, batches(count), trial.send, lambda passed_s: None)
        return trial.finish()


def _send_at(rate: int, source: Iterator[Batch], send: Callable[[Batch], None], tick: Callable[[float], None]) -> float:
    """Send batches as they fall due; `tick` is called with the seconds since the first. Return when that was.

    A record is as old as since it was due: one that had to wait, because who sends was held up, shows it.
    """
    began_s, began_ns, sent = time.monotonic(), now_ns(), 0
    while True:
        passed_s = time.monotonic() - began_s
        tick(passed_s)
        while sent < passed_s * rate:
            batch = next(source, None)
            if batch is None:
                return began_s
            batch.stamps[:] = began_ns + round(1e9 * sent / rate)
            send(batch)
            sent += batch.length
        time.sleep(_TICK_S)


def _cut(here: Path, cut_s: float, around_s: float) -> dict[str, Any]:
    """Send at a rate while the link is cut for a while; what waits meanwhile is on disk."""
    count = int(_CUT_RATE * (cut_s + 2 * around_s))
    with _trial(here, count, here / "buffer") as trial:
        link = Link(trial.port)
        trial.open(link)
        memory_mb: list[float] = []

        def tick(passed_s: float) -> None:
            if not memory_mb and passed_s >= around_s:
                link.cut()
            if passed_s >= around_s:
                memory_mb.append(_resident_mb())
            if passed_s >= around_s + cut_s:
                link.mend()

        began_s = _send_at(_CUT_RATE, batches(count), trial.send, tick)
        figures = trial.finish()
    return {
        **figures,
        "cut_s": cut_s,
        "memory_mb": round(max(memory_mb) - memory_mb[0], 1),
        "caught_up_per_s": _caught_up(figures["came"], began_s, began_s + around_s + cut_s, count),
        "link_per_s": _link_speed(here, int(_CUT_RATE * cut_s)),
    }


def _caught_up(came: list[tuple[float, int]], began_s: float, mended_s: float, count: int) -> int:
    """Return at how many records/s came what had waited, from the first of it until next to nothing waited any more."""
    after = [(at_s, records) for at_s, records in came if at_s > mended_s]
    if not after:
        return 0
    before = max((records for at_s, records in came if at_s <= mended_s), default=0)
    for at_s, records in after:
        if records >= min(count, _CUT_RATE * (at_s - began_s)) - _CUT_RATE / 4:
            return round((records - before) / max(at_s - after[0][0], _TICK_S))
    at_s, records = after[-1]
    return round((records - before) / max(at_s - after[0][0], _TICK_S))


def _link_speed(here: Path, backlog: int) -> int:
    """Return how many records/s the same link takes from a sender that has them all on disk already."""
    with _trial(here, backlog, here / "full") as trial:
        link = Link(trial.port)
        link.cut()
        trial.open(link)
        for batch in batches(backlog):
            trial.send(batch)
        link.mend()
        figures = trial.finish()
    took_s: float = figures["last_s"] - figures["first_s"]
    return round(backlog / max(took_s, 1e-3))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def table(answer: dict[str, Any]) -> str:
    """Say it in words."""
    right = not (answer["lost"] or answer["twice"] or answer["wrong"])
    return (
        f"{answer['records_per_s']:,} records/s in batches of {answer['batch']}, encrypted; "
        f"at {answer['rate']:,} records/s p50 {answer['p50_ms']:g} ms, p99 {answer['p99_ms']:g} ms\n"
        f"the link cut for {answer['cut_s']:g} s at {answer['cut_rate']:,} records/s: {answer['memory_mb']:g} MB more "
        f"memory, then {answer['caught_up_per_s']:,} records/s, where the link takes {answer['link_per_s']:,}\n"
        + (
            f"all {answer['records']:,} records came once, in order"
            if right
            else f"WRONG: {answer['lost']} lost, {answer['twice']} twice, {answer['wrong']} with other values"
        )
    )
