"""Metrics of a run for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.engine import Run
from headwater.errors import RunError


class RunCollector:
    """Reads a run's measurements each time Prometheus asks."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def collect(self) -> Iterator[Any]:
        """Return every measurement of every step, and the latency quantiles."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        sample = self._run.sample()
        flow = self._run.flow.name
        counters = {
            "records_in": ("Records a step took in", lambda s: s.records_in),
            "records_out": ("Records a step gave out", lambda s: s.records_out),
            "activations": ("Turns a step had", lambda s: s.activations),
            "queue_seconds": ("T_Q: time records waited behind others, summed", lambda s: s.t_q_ns / 1e9),
            "schedule_seconds": ("T_S: time records waited for a worker, summed", lambda s: s.t_s_ns / 1e9),
            "compute_seconds": ("T_C: time records were computed, summed", lambda s: s.t_c_ns / 1e9),
            "busy_seconds": ("Time workers spent in a step", lambda s: s.busy_ns / 1e9),
            "dead_letters": ("Records that broke a step", lambda s: s.dead_letters),
            "shed": ("Records a source shed", lambda s: s.shed),
        }
        for name, (text, value) in counters.items():
            family = CounterMetricFamily(f"headwater_{name}", text, labels=["flow", "step"])
            for step in sample.steps.values():
                family.add_metric([flow, step.name], value(step))
            yield family
        gauges = {
            "queue_records": ("Records waiting for a step", lambda s: s.queue),
            "utilisation": ("1 - T_empty / T_w since the start", lambda s: s.utilisation),
        }
        for name, (text, value) in gauges.items():
            family = GaugeMetricFamily(f"headwater_{name}", text, labels=["flow", "step"])
            for step in sample.steps.values():
                family.add_metric([flow, step.name], value(step))
            yield family
        back = CounterMetricFamily("headwater_backpressure_seconds", "Time sources were held back", labels=["flow"])
        back.add_metric([flow], sample.backpressure_s)
        yield back
        latency = SummaryMetricFamily("headwater_latency_seconds", "Age of records at the sinks", labels=["flow"])
        latency.add_metric([flow], count_value=sample.latency.count, sum_value=sample.latency.total / 1e9)
        yield latency
        quantiles = GaugeMetricFamily("headwater_latency_quantile_seconds", "Age at the sinks", labels=["flow", "quantile"])
        for percent in (50, 95, 99):
            quantiles.add_metric([flow, str(percent / 100)], sample.latency.percentile(percent) / 1e9)
        yield quantiles


def serve(run: Run, port: int, address: str = "127.0.0.1") -> Any:
    """Serve a run's metrics at http://address:port/metrics; returns the server."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise RunError("metrics for Prometheus need prometheus-client: pip install 'headwater[prometheus]'") from None
    registry = CollectorRegistry()
    registry.register(RunCollector(run))
    try:
        server, _ = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise RunError(f"cannot serve metrics on {address}:{port}: {error.strerror}; is the port taken?") from None
    return server
