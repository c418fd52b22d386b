"""Experiment `outages`: a broker, a database, a server that are away for a minute while a flow writes to them.

A flow with checkpoints makes records at a rate; some time after it began its sink is cut off, and there again after
`seconds`. Records wait on disk meanwhile: `waiting_most` is how many at most, `folder_most_mb` what the checkpoint's folder
took. In the end what the other side has is held against what was made: `lost`, `twice`, and for MQTT `again`, which its
receivers can tell by ids or by the record's number. So it is with a broker that is read from: it keeps what is published.
"""

from __future__ import annotations

import copy
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from headwater import Flow, engine, io
from headwater.engine import EngineRun
from headwater.errors import FlowError, listed
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.kills import targets
from headwater_bench.kills.case import FIELDS, Target, make_records, summed
from headwater_bench.kills.origins import name_of
from headwater_bench.kills.servers import started
from headwater_bench.servers import mosquitto
from headwater_bench.servers.link import Link

_RATE_HZ = 2_000
_BEFORE_S = _AFTER_S = 1.0  #: for which records come before the cut, and after it
_PATIENCE_S = 300.0
_FAULTS = ("lost", "twice", "dead_letters")


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    seconds: float | None = None,
    case: Sequence[str] = (),
    postgres: str | None = None,
) -> dict[str, Any]:
    """Cut each sink off once; raises AssertionError where a record is lost or there twice."""
    away_s = seconds or (2.0 if quick else 60.0)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headwater-outages-") as folder, ExitStack() as stack:
        # none of Kafka: its clients are told where brokers are, and would not go by a link of ours
        servers = stack.enter_context(started(postgres, "none", quick=quick))
        cases: dict[str, Callable[[Path], dict[str, Any]]] = {}
        if servers.mqtt is not None:
            mqtt = Link(servers.mqtt)
            stack.callback(mqtt.close)
            cases["to MQTT"] = _to(targets.Mqtt(mqtt.port), mqtt, away_s)
            cases["to MQTT with ids"] = _to(targets.MqttWithIds(mqtt.port), mqtt, away_s)
            cases["from MQTT"] = _from_mqtt(servers.mqtt, mqtt, away_s)
        if servers.http is not None:
            http = Link(servers.http.port)
            stack.callback(http.close)
            behind = copy.copy(servers.http)
            behind.port = http.port
            cases["to HTTP"] = _to(targets.Http(behind), http, away_s)
        if servers.postgres is not None:
            place, _, database = servers.postgres.rpartition("/")
            host, _, port = place.rpartition(":")
            link = Link(int(port))
            stack.callback(link.close)
            cases["to PostgreSQL"] = _to(targets.Postgres(f"{host}:{link.port}/{database}"), link, away_s)
        for number, name in enumerate(_select(cases, case)):
            place_of = Path(folder, f"round-{number}")
            place_of.mkdir()
            rows.append({"case": name, **cases[name](place_of)})
    if output is not None:
        write_rows(rows, output / "outages.csv")
    answer: dict[str, Any] = {
        **{name: sum(row[name] for row in rows) for name in _FAULTS},
        "cases": {row["case"]: {name: value for name, value in row.items() if name != "case"} for row in rows},
        "away_s": away_s,
        "rate_hz": _RATE_HZ,
        "not_here": servers.missing,
    }
    if any(answer[name] for name in _FAULTS):
        raise AssertionError(f"records are not where they belong: {answer}")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    cases = answer["cases"]
    names = list(dict.fromkeys(name for figures in cases.values() for name in figures))
    lines = text_table(
        ["", *names], [[case, *(figures.get(name, "") for name in names)] for case, figures in cases.items()]
    )
    return "\n".join([f"away for {answer['away_s']:g} s, at {answer['rate_hz']:,} records/s", *lines])


def _select(cases: dict[str, Any], parts: Sequence[str]) -> list[str]:
    names = [name for name in cases if not parts or any(each in name for each in parts)]
    if not names:
        raise FlowError(f"no case is called {listed(parts)}; cases are {listed(cases)}")
    return names


# -- a sink that is away --------------------------------------------------------------------------------------------------


def _to(target: Target, link: Link, away_s: float) -> Callable[[Path], dict[str, Any]]:
    def play(folder: Path) -> dict[str, Any]:
        def flow() -> Flow:
            flow = Flow("away")
            source = io.Generate(make_records, FIELDS, rate=_RATE_HZ)
            summed(flow.read("in", source)).write("out", target.sink(folder))
            return flow

        target.prepare(folder)
        run = engine.start(flow(), checkpoint=folder / "checkpoint", every="500 ms")
        _until(lambda: run.sample().records_in > _RATE_HZ * _BEFORE_S, run)
        link.cut()
        try:
            outage = _watched(run, folder / "checkpoint", away_s)
        finally:
            link.mend()
        time.sleep(_AFTER_S)
        run.stop()
        reports: list[Any] = [run.wait()]
        while _account(reports[-1])["waiting"]:  # what is left when a run ends is for the next one
            reports.append(engine.run(flow(), checkpoint=folder / "checkpoint", seconds=0.2))
            assert len(reports) < 50, f"{_account(reports[-1])} after {len(reports)} runs"
        accounts = [_account(report) for report in reports]
        return {
            **_compared(target, target.rows(folder), sum(report.last.records_in for report in reports)),
            **outage,
            "failed_attempts": sum(each["failed_attempts"] for each in accounts),
            "dead_letters": sum(report.dead_letters for report in reports),
            "runs": len(reports),
        }

    return play


def _watched(run: EngineRun, folder: Path, away_s: float) -> dict[str, Any]:
    """Look at what waits while the other side is away."""
    most, nbytes, until_s = 0, 0, time.monotonic() + away_s
    while time.monotonic() < until_s or not most:
        assert time.monotonic() < until_s + _PATIENCE_S, "nothing waits though the other side is away"
        most = max(most, _account(run.report())["waiting"])
        nbytes = max(nbytes, _size(folder))
        time.sleep(min(0.25, away_s / 8))
    return {"waiting_most": most, "folder_most_mb": round(nbytes / 2**20, 2)}


def _account(report: Any) -> dict[str, Any]:
    account: dict[str, Any] = report.extra["sinks"]["out"]
    return account


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:  # removed meanwhile
            continue
    return size


def _compared(target: Target, rows: Sequence[Sequence[Any]], count: int) -> dict[str, int]:
    again = 0
    if target.ids:
        unique = {row[-1]: row for row in rows}
        again, rows = len(rows) - len(unique), list(unique.values())
    numbers = Counter(row[1] for row in rows)
    twice = numbers.total() - len(numbers)
    if not target.once:
        again, twice = twice, 0
    return {"records": count, "lost": count - len(numbers), "twice": twice, "again": again}


# -- a source that is away ------------------------------------------------------------------------------------------------


def _from_mqtt(port: int, link: Link, away_s: float) -> Callable[[Path], dict[str, Any]]:
    def play(folder: Path) -> dict[str, Any]:
        topic, out = name_of(folder), folder / "out.jsonl"
        url = f"mqtt://127.0.0.1:{link.port}"
        flow = Flow("away")
        source = io.Mqtt(url, topic, {"n": int}, qos=2, client_id=topic, retry="100 ms")
        flow.read("in", source).write("out", io.JsonLines(out))
        pieces = max(4, round(away_s))
        reader = source.open(_unexpected)
        assert reader.subscribed.wait(_PATIENCE_S)
        reader.close()
        with _running(flow, folder) as run:
            _publish(port, topic, 0)
            _until(lambda: run.sample().records_in > 0, run)
            link.cut()
            began_s = time.monotonic()
            try:
                for piece in range(1, pieces + 1):
                    _publish(port, topic, piece)
                    time.sleep(max(0.0, began_s + piece * away_s / pieces - time.monotonic()))
            finally:
                link.mend()
            expected = {100 * piece + n for piece in range(pieces + 1) for n in range(100)}
            _until(lambda: len(_lines(out)) >= len(expected), run)
        mosquitto.forget(port, topic)
        numbers = Counter(_lines(out))
        return {
            "records": len(expected),
            "lost": len(expected - numbers.keys()),
            "twice": numbers.total() - len(numbers),
            "dead_letters": 0,
        }

    return play


@contextmanager
def _running(flow: Flow, folder: Path) -> Iterator[EngineRun]:
    run = engine.start(flow, checkpoint=folder / "checkpoint", every="500 ms")
    try:
        yield run
    finally:
        run.stop()
        run.wait()


def _publish(port: int, topic: str, piece: int) -> None:
    mosquitto.publish(port, topic, [f'{{"n": {100 * piece + n}}}' for n in range(100)], qos=2)


def _unexpected(text: str, why: str) -> None:
    raise AssertionError(f"{text}: {why}")


def _lines(path: Path) -> list[int]:
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["n"] for line in lines if line.endswith("\n")]


def _until(is_so: Callable[[], bool], run: EngineRun) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < until_s, f"it does not come to that: {run.sample()}"
        time.sleep(0.02)
