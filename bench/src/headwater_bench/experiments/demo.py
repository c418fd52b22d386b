"""The demonstration: a city of sensors over MQTT, then the same flow under overload on two runners, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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
from headwater_bench.experiments.descent import Found, highest_sustained
from headwater_bench.experiments.plots import Phase, over_time
from headwater_bench.experiments.surroundings import Watch
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
_OVERLOADED = 0.95  #: of what is offered in the overload, of which less is delivered; else it was none
_LEVELS = {
    "capacity": "capacity: the engine sustains {:,.0f}/s",
    "full speed": "full speed: the engine works off {:,.0f}/s when all is there at once",
}
_AFTER = ", and the backlog"
_MARGIN = 1.1  #: of what was delivered in an overload that was none: what is then taken for the full speed


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
        load = sensors.wait()
        assert load is not None
        _settle(running["etl"], load.last.records_in)
        for each in running.values():
            each.stop()
        reports = {name: each.wait() for name, each in running.items()}
    return {"sent": load.last.records_in, **{name: _figures_of(report) for name, report in reports.items() if report}}


def _city(url: str) -> list[Flow]:
    text = Schema.of({"message": str})

    def hear(topic: str, who: str) -> Source:
        return Numbered(Mqtt(url, topic, text, payload="text", client_id=who))

    def publisher(topic: str) -> Mqtt:
        return Mqtt(url, topic, payload="text")

    whole = etl(hear("city/raw", "etl"))
    # the flow as it is, but for its last step: only the text goes out, since that is what the other two flows read
    flow = Flow.of_steps("etl", [each for each in whole.steps.values() if each.name != "publish"])
    Stream(flow, "senml").select("payload", "senml").write("publish", publisher("city/clean"))
    return [flow, stats(hear("city/clean", "stats")), pred(hear("city/clean", "pred"))]


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


def _figures_of(report: Report) -> dict[str, Any]:
    document = report.to_json()
    keys = ("records_in", "records_out", "dead_letters", "latency_ms")
    return {key: document[key] for key in keys}


class Scale(NamedTuple):
    """What the act's shares are shares of."""

    hz: float
    name: str  #: `capacity`, or `full speed` where the machine was too restless to find that


def under_overload(output: Path) -> dict[str, Any]:
    """Drive ETL through calm, load, overload and calm again, on the engine and on threads.

    An overload that turns out to be none, since the machine became faster, is played once more, from full speed.
    """
    watch = Watch()
    result = highest_sustained(FLOWS["etl"], _TRIAL_S)
    conditions = {"restless": not result.is_sure, "visits": result.visits, "others": watch.report().others}
    scale = scale_of(result)
    samples, played = _played(scale)
    if not is_overload(played["engine"]["phases"], scale):
        fastest_hz = max(phase["out_hz"] for phase in played["engine"]["phases"])
        scale = Scale(max(result.full_hz, _MARGIN * fastest_hz), "full speed")
        samples, played = _played(scale)
    _write(samples, scale, output)
    return {
        "capacity_hz": round(scale.hz) if scale.name == "capacity" else None,
        "scale": scale._asdict(),
        **conditions,
        "is_overload": is_overload(played["engine"]["phases"], scale),
        **played,
    }


def scale_of(result: Found) -> Scale:
    """Return what is taken for 100 %: the capacity, or where that was not found for sure, full speed, which is beyond it."""
    return Scale(result.rate_hz, "capacity") if result.is_sure else Scale(result.full_hz, "full speed")


def is_overload(phases: list[dict[str, float]], scale: Scale) -> bool:
    """Say whether less came out than was offered, wherever that was more than 100 %."""
    return all(each["out_hz"] < _OVERLOADED * each["load"] * scale.hz for each in phases if each["load"] > 1)


def _played(scale: Scale) -> tuple[dict[str, list[Sample]], dict[str, Any]]:
    """Play the act on both runners; return what was sampled, and what it comes to."""
    rates = step([(at, share * scale.hz) for at, share in ACT])
    samples: dict[str, list[Sample]] = {}
    figures: dict[str, Any] = {}
    for on in ("engine", "threads"):
        report = engine.run(etl(generated("city", rates)), on=on, seconds=ACT_S, sample_s=_SAMPLE_S)
        samples[on] = [sample for sample in report.samples if sample.at_s <= ACT_S]
        figures[on] = {**_figures_of(report), "phases": _phases(report.samples)}
    return samples, figures


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


def _write(samples: dict[str, list[Sample]], scale: Scale, output: Path) -> None:
    throughput, latency, lines = {}, {}, ["runner,second,messages_per_s,p99_ms,waiting"]
    for on, run_samples in samples.items():
        times, rates, p99s = [], [], []
        for before, now in pairwise(run_samples):
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
    throughput["offered"] = _offered(scale.hz)
    series = {"delivered, thousand/s": throughput, "p99 latency, ms": latency}
    over_time(
        series,
        output / "overload.png",
        "ETL of a city on two runners: what is offered, what is delivered, and how late",
        _phases_of(scale),
        (_LEVELS[scale.name].format(scale.hz), scale.hz / 1e3),
    )


def _phases_of(scale: Scale) -> list[Phase]:
    """Return the phases of the act, by what is offered in them, and why more may be delivered than that."""
    starts = [float(at.split()[0]) for at, _ in ACT]
    shares = [share for _, share in ACT]
    return [
        Phase(start, end, f"{share:.0%} of {scale.name}{_AFTER if before > 1 else ''}", share > 1)
        for share, before, (start, end) in zip(shares, [0.0, *shares], pairwise([*starts, ACT_S]), strict=False)
    ]


def _offered(full_hz: float) -> tuple[list[float], list[float]]:
    """Return the rate that is offered, as corners of a line."""
    starts = [float(at.split()[0]) for at, _ in ACT]
    corners = [
        (at, share * full_hz / 1e3)
        for (_, share), span in zip(ACT, pairwise([*starts, ACT_S]), strict=True)
        for at in span
    ]
    return [at for at, _ in corners], [rate for _, rate in corners]
