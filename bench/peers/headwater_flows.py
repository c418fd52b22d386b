"""ETL, STATS and PRED on Headwater, run like the peers: the same messages, one child process, a null sink."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from load import WARM_S, options

from headwater import engine
from headwater.data.column import Text
from headwater.flow import Flow
from headwater.io import Collect
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import repeated
from headwater_bench.riot.stats import stats

_RESULTS = {"etl": 2, "stats": 3, "pred": 2}  #: that each message gives
_TALL_RESULTS = {"etl": 2, "stats": 15}  #: where each of its five observations is a record


def build(
    name: str, source: Any, notes: dict[str, tuple[str, ...]], sinks: dict[str, Any], *, tall: bool = False
) -> Flow:
    """Build a flow in the form that suits the engine best, rows of whole messages; `tall`, with a record per observation."""
    if name == "etl":
        return etl(source, notes=notes, wide=not tall, **sinks)
    return stats(source, wide=not tall, **sinks) if name == "stats" else pred(source, instances={"parse": 1}, **sinks)


def measure(
    name: str, texts: Text, notes: dict[str, tuple[str, ...]], rate: float, seconds: float, *, tall: bool = False
) -> dict[str, Any]:
    """Run at a rate; return what came out per second after the warm-up, and how late."""
    engine.run(build(name, repeated(texts, 1e9, count=5000), notes, {}, tall=tall))  # compiles what is not compiled yet
    flow = build(name, repeated(texts, rate), notes, {}, tall=tall)
    running = engine.start(flow, seconds=60.0)
    time.sleep(WARM_S)
    first, cpu_s = running.sample(), time.process_time()
    time.sleep(seconds)
    last, cpu_s = running.sample(), time.process_time() - cpu_s
    running.stop()
    report = running.wait()
    assert report is not None
    if report.dead_letters or report.left or report.shed:
        raise AssertionError(f"{name}: {report.dead_letters} dead, {report.left} left, {report.shed} shed")
    latency = last.latency.minus(first.latency)
    out = sum(last.records_out.values()) - sum(first.records_out.values())
    return {
        "cpu_us": 1e6 * cpu_s / max(1, last.records_in - first.records_in),
        "out_hz": out / (last.at_s - first.at_s) / (_TALL_RESULTS if tall else _RESULTS)[name],
        "p50_ms": latency.percentile(50) / 1e6,
        "p99_ms": latency.percentile(99) / 1e6,
        "sent": report.last.records_in,
        "steps": {
            step.name: 1e9 * step.records_in / step.busy_ns
            for step in report.last.steps.values()
            if step.busy_ns and step.name not in ("messages", "insert", "publish")
        },
    }


def check(name: str, texts: Text, notes: dict[str, tuple[str, ...]], path: Path, *, tall: bool = False) -> int:
    """Send all messages once and write all results in the peers' form; return how many there were."""
    sinks = {"insert": Collect(), "publish": Collect()} if name == "etl" else {"publish": Collect()}
    engine.run(build(name, repeated(texts, 1e9, count=len(texts)), notes, sinks, tall=tall), workers=1)
    results = [list(record.values()) for sink in sinks.values() for record in sink.records]
    path.write_text("\n".join(json.dumps(result) for result in results))
    return len(results)


def main() -> None:
    """Read the command line, run, and print one JSON document."""
    arguments = options().parse_args()
    texts = Text.of_bytes(arguments.messages.read_bytes().splitlines())
    notes = {sensor: tuple(words) for sensor, words in json.loads(arguments.notes.read_text()).items()}
    if arguments.check is not None:
        print(json.dumps({"results": check(arguments.flow, texts, notes, arguments.check, tall=arguments.tall)}))
        return
    answer = measure(arguments.flow, texts, notes, arguments.rate, arguments.seconds, tall=arguments.tall)
    print(json.dumps(answer["steps"] if arguments.steps else answer))


if __name__ == "__main__":
    main()
