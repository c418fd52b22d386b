"""The demonstration: a city of sensors over MQTT, then the same flow under overload on two runners, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine
from headwater.data.jit import wait_until_compiled
from headwater.flow import Batch, Flow, Schema, Stream
from headwater.flow.endpoints import Reader, Reject, Source
from headwater.io import Mqtt
from headwater.io.rates import step
from headwater.metrics import Report, Sample
from headwater.run import Run
from headwater_bench.experiments.broker import broker
from headwater_bench.experiments.descent import highest_sustained
from headwater_bench.experiments.plots import Phase, over_time
from headwater_bench.experiments.sustained import FLOWS
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MESSAGES, generated
from headwater_bench.riot.stats import stats

SENSORS_HZ = 200
#: when the overload act changes its rate, and to what share of the flow's capacity
ACT = (("0 s", 0.4), ("3 s", 0.8), ("6 s", 1.6), ("8 s", 0.4))
ACT_S = 13.0
_TRIAL_S = 1.2  #: how long each rate is tried in search of the capacity
_SAMPLE_S = 0.25
_LEAST_HZ = 1_000.0  #: taken for the capacity where others leave the machine no time


@dataclass(frozen=True)
class Numbered:
    """Numbers the messages of a source, since the flows tell messages apart by number."""

    source: Source
    schema = MESSAGES

    def open(self, reject: Reject) -> _NumberedReader:
        """Open the source and count from 0."""
        return _NumberedReader(self.source.open(reject))


class _NumberedReader:
    def __init__(self, reader: Reader) -> None:
        self._reader, self._next = reader, 0

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        batch = self._reader.read(limit, timeout_s)
        if batch is None:
            return None
        numbers = np.arange(self._next, self._next + batch.length)
        self._next += batch.length
        return Batch({"msg": numbers, **batch.columns}, batch.length, batch.stamps)

    def close(self) -> None:
        self._reader.close()


def run(output: Path, *, seconds: float = 8.0, show: Callable[[Run], Any] = lambda run: None) -> dict[str, Any]:
    """Play both acts; `show` is given the running ETL of the first. Writes city.csv, overload.csv and overload.png."""
    output.mkdir(parents=True, exist_ok=True)
    _compile_kernels()
    city = city_on_mqtt(seconds, show)
    overload = under_overload(output)
    return {"city": city, "overload": overload, "output": str(output)}


def _compile_kernels() -> None:
    """Run each flow once: on a fresh machine its kernels are compiled now, and found on disk from then on."""
    for make in (etl, stats, pred):
        engine.run(make(generated("city", 100_000, count=500)))
    wait_until_compiled()


def city_on_mqtt(seconds: float, show: Callable[[Run], Any]) -> dict[str, Any]:
    """Sensors publish; ETL cleans and publishes on; STATS and PRED read what it cleaned. A real broker in between."""
    with broker() as url:
        flows = _city(url)
        running = {flow.name: engine.start(flow) for flow in flows}
        sensors = engine.start(_sensors(url, seconds))
        show(running["etl"])
        sent = sensors.wait()
        assert sent is not None
        _settle(running["etl"], sent.last.records_in)
        for each in running.values():
            each.stop()
        reports = {name: each.wait() for name, each in running.items()}
    return {"sent": sent.last.records_in, **{name: _told(report) for name, report in reports.items() if report}}


def _city(url: str) -> list[Flow]:
    text = Schema.of({"message": str})

    def heard(topic: str, who: str) -> Source:
        return Numbered(Mqtt(url, topic, text, payload="text", client_id=who))

    def said(topic: str) -> Mqtt:
        return Mqtt(url, topic, payload="text")

    whole = etl(heard("city/raw", "etl"))
    # the flow as it is, but for its last step: only the text goes out, since that is what the other two flows read
    flow = Flow.of_steps("etl", [each for each in whole.steps.values() if each.name != "publish"])
    Stream(flow, "senml").select("payload", "senml").write("publish", said("city/clean"))
    return [flow, stats(heard("city/clean", "stats")), pred(heard("city/clean", "pred"))]


def _sensors(url: str, seconds: float) -> Flow:
    flow = Flow("sensors")
    messages = flow.read("sensors", generated("city", SENSORS_HZ, count=int(SENSORS_HZ * seconds)))
    messages.select("payload", "message").write("radio", Mqtt(url, "city/raw", payload="text"))
    return flow


def _settle(run: Run, expected: int, patience_s: float = 5.0) -> None:
    """Wait until the broker has handed all messages over, or for as long as a broker may take."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and run.sample().records_in < expected:
        time.sleep(0.05)
    time.sleep(0.3)


def _told(report: Report) -> dict[str, Any]:
    document = report.to_json()
    keys = ("records_in", "records_out", "dead_letters", "latency_ms")
    return {key: document[key] for key in keys}


def under_overload(output: Path) -> dict[str, Any]:
    """Drive ETL through calm, load, overload and calm again, on the engine and on threads."""
    capacity = highest_sustained(FLOWS["etl"], _TRIAL_S) or _LEAST_HZ
    rates = step([(at, share * capacity) for at, share in ACT])
    samples: dict[str, list[Sample]] = {}
    told: dict[str, Any] = {"capacity_hz": round(capacity)}
    for on in ("engine", "threads"):
        report = engine.run(etl(generated("city", rates)), on=on, seconds=ACT_S, sample_s=_SAMPLE_S)
        samples[on] = [sample for sample in report.samples if sample.at_s <= ACT_S]
        told[on] = {**_told(report), "phases": _phases(report.samples)}
    _write(samples, capacity, output)
    return told


def _phases(samples: list[Sample]) -> list[dict[str, float]]:
    """Return throughput and latency of each phase of the act."""
    starts = [float(at.split()[0]) for at, _ in ACT]
    phases = []
    for (_, share), start, stop in zip(ACT, starts, [*starts[1:], ACT_S], strict=True):
        inside = [s for s in samples if start <= s.at_s <= stop]
        if len(inside) > 1:
            latency = inside[-1].latency.minus(inside[0].latency)
            out = sum(inside[-1].records_out.values()) - sum(inside[0].records_out.values())
            phases.append(
                {
                    "load": share,
                    "out_hz": round(out / 2 / (inside[-1].at_s - inside[0].at_s)),
                    "p50_ms": round(latency.percentile(50) / 1e6, 2),
                    "p99_ms": round(latency.percentile(99) / 1e6, 2),
                }
            )
    return phases


def _write(samples: dict[str, list[Sample]], capacity_hz: float, output: Path) -> None:
    throughput, latency, lines = {}, {}, ["runner,second,messages_per_s,p99_ms,waiting"]
    for on, taken in samples.items():
        times, rates, p99s = [], [], []
        for before, now in pairwise(taken):
            if now.at_s - before.at_s < _SAMPLE_S / 2:
                continue  # the last comes when the run ends
            out = (sum(now.records_out.values()) - sum(before.records_out.values())) / 2
            times.append(now.at_s)
            rates.append(out / (now.at_s - before.at_s) / 1e3)
            p99s.append(max(0.01, now.latency.minus(before.latency).percentile(99) / 1e6))
            waiting = sum(each.queue for each in now.steps.values())
            lines.append(f"{on},{now.at_s:.2f},{rates[-1] * 1e3:.0f},{p99s[-1]:.2f},{waiting}")
        throughput[on], latency[on] = (times, rates), (times, p99s)
    (output / "overload.csv").write_text("\n".join(lines) + "\n")
    throughput["offered"] = _offered(capacity_hz)
    series = {"delivered, thousand/s": throughput, "p99 latency, ms": latency}
    over_time(
        series,
        output / "overload.png",
        "ETL of a city on two runners: what is offered, what is delivered, and how late",
        _named(),
        (f"capacity: the engine sustains {capacity_hz:,.0f}/s", capacity_hz / 1e3),
    )


def _named() -> list[Phase]:
    """Return the phases of the act, by what is offered in them."""
    starts = [float(at.split()[0]) for at, _ in ACT]
    return [
        Phase(start, end, f"{share:.0%} of capacity", share > 1)
        for (_, share), (start, end) in zip(ACT, pairwise([*starts, ACT_S]), strict=True)
    ]


def _offered(capacity_hz: float) -> tuple[list[float], list[float]]:
    """Return the rate that is offered, as corners of a line."""
    starts = [float(at.split()[0]) for at, _ in ACT]
    corners = [
        (at, share * capacity_hz / 1e3)
        for (_, share), span in zip(ACT, pairwise([*starts, ACT_S]), strict=True)
        for at in span
    ]
    return [at for at, _ in corners], [rate for _, rate in corners]
