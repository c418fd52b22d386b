"""Metrics of a run for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.metrics import Sample, StepMetrics


class FlowRun(Protocol):
    """A run in progress, with the flow that runs."""

    @property
    def flow(self) -> Flow:
        """The flow that runs."""

    def sample(self) -> Sample:
        """Return everything counted since the run began."""


Value = Callable[[StepMetrics], float]

_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("records_in", "Records a step took in", lambda step: step.records_in),
    ("records_out", "Records a step gave out", lambda step: step.records_out),
    ("activations", "Turns a step had", lambda step: step.activations),
    ("queue_seconds", "T_Q: time records waited behind others, summed", lambda step: step.t_q_ns / 1e9),
    ("schedule_seconds", "T_S: time records waited for a worker, summed", lambda step: step.t_s_ns / 1e9),
    ("compute_seconds", "T_C: time records were computed, summed", lambda step: step.t_c_ns / 1e9),
    ("busy_seconds", "Time workers spent in a step", lambda step: step.busy_ns / 1e9),
    ("dead_letters", "Records that broke a step", lambda step: step.dead_letters),
    ("late", "Records that came too late for a step", lambda step: step.late),
    ("shed", "Records a source shed", lambda step: step.shed),
)
_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("queue_records", "Records waiting for a step", lambda step: step.queue),
    ("utilisation", "1 - T_empty / T_w since the start", lambda step: step.utilisation),
)


class RunCollector:
    """Reads a run's measurements each time Prometheus asks."""

    def __init__(self, run: FlowRun) -> None:
        self._run = run

    def collect(self) -> Iterator[Any]:
        """Return every measurement of every step, and the latency quantiles."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        sample = self._run.sample()
        flow = self._run.flow.name
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(f"headwater_{name}", text, labels=["flow", "step"])
            for step in sample.steps.values():
                counter.add_metric([flow, step.name], value(step))
            yield counter
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(f"headwater_{name}", text, labels=["flow", "step"])
            for step in sample.steps.values():
                gauge.add_metric([flow, step.name], value(step))
            yield gauge
        back = CounterMetricFamily("headwater_backpressure_seconds", "Time sources were held back", labels=["flow"])
        back.add_metric([flow], sample.backpressure_s)
        yield back
        latency = SummaryMetricFamily("headwater_latency_seconds", "Age of records at the sinks", labels=["flow"])
        latency.add_metric([flow], count_value=sample.latency.count, sum_value=sample.latency.total / 1e9)
        yield latency
        quantiles = GaugeMetricFamily(
            "headwater_latency_quantile_seconds", "Age at the sinks", labels=["flow", "quantile"]
        )
        for percent in (50, 95, 99):
            quantiles.add_metric([flow, str(percent / 100)], sample.latency.percentile(percent) / 1e9)
        yield quantiles
        promise = getattr(self._run, "promise", None)  # a promised run has one
        if promise is not None:
            yield from _promise(flow, promise())


def _promise(flow: str, promise: dict[str, Any]) -> Iterator[Any]:
    """Return the windows of a promise, kept and broken, and its cores."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    windows = CounterMetricFamily("headwater_promise_windows", "Seconds of a promise", labels=["flow", "outcome"])
    windows.add_metric([flow, "kept"], promise["kept"])
    windows.add_metric([flow, "broken"], promise["windows"] - promise["kept"])
    yield windows
    cores = GaugeMetricFamily("headwater_promise_cores", "Cores of a promise", labels=["flow", "which"])
    for which in ("reserved", "used"):
        cores.add_metric([flow, which], promise[f"{which}_cores"])
    yield cores


def serve(run: FlowRun, port: int, address: str = "127.0.0.1") -> Any:
    """Serve a run's metrics at http://address:port/metrics; returns the server."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise RunError("metrics for Prometheus need prometheus-client: pip install 'headwater[prometheus]'") from None
    if not 0 <= port <= 65535:
        raise RunError(f"cannot serve metrics on port {port}: ports go from 1 to 65535")
    registry = CollectorRegistry()
    registry.register(RunCollector(run))
    try:
        server, _ = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise RunError(f"cannot serve metrics on {address}:{port}: {error.strerror}; is the port taken?") from None
    return server
