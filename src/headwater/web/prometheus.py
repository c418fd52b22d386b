"""Metrics of a run for Prometheus: `families` says what there is, `exposition` writes it down, `serve` has it served."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headwater.errors import RunError
from headwater.metrics import Sample, StepMetrics

if TYPE_CHECKING:
    from headwater.flow.flow import Flow


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


class Family(NamedTuple):
    """All values of one metric."""

    name: str
    kind: str  #: "counter", "gauge" or "summary"
    about: str
    #: what is behind the name, labels, value
    values: list[tuple[str, dict[str, str], float]]


def families(flow: str, sample: Sample, promise: dict[str, Any] | None = None) -> list[Family]:
    """Return every measurement of every step of a flow, the latency quantiles, and how its promise fares."""
    steps = sample.steps.values()
    metrics = [
        Family(
            f"headwater_{name}", "counter", about, [("_total", {"flow": flow, "step": s.name}, of(s)) for s in steps]
        )
        for name, about, of in _COUNTERS
    ]
    metrics += [
        Family(f"headwater_{name}", "gauge", about, [("", {"flow": flow, "step": s.name}, of(s)) for s in steps])
        for name, about, of in _GAUGES
    ]
    of_flow = {"flow": flow}
    backpressure = [("_total", of_flow, sample.backpressure_s)]
    ages = [("_count", of_flow, float(sample.latency.count)), ("_sum", of_flow, sample.latency.total / 1e9)]
    quantiles = [
        ("", {**of_flow, "quantile": str(percent / 100)}, sample.latency.percentile(percent) / 1e9)
        for percent in (50, 95, 99)
    ]
    metrics += [
        Family("headwater_backpressure_seconds", "counter", "Time sources were held back", backpressure),
        Family("headwater_latency_seconds", "summary", "Age of records at the sinks", ages),
        Family("headwater_latency_quantile_seconds", "gauge", "Age at the sinks", quantiles),
    ]
    if promise is not None:
        outcomes = [("kept", "", promise["kept"])]
        outcomes += [("broken", *each) for each in _causes(promise["causes"]).items()]
        windows = [("", {**of_flow, "outcome": what, "cause": why}, float(count)) for what, why, count in outcomes]
        cores = [("", {**of_flow, "which": which}, promise[f"{which}_cores"]) for which in ("reserved", "used")]
        metrics += [
            # no counter: a second that was kept may still break, by records of it that are found late
            Family("headwater_promise_windows", "gauge", "Seconds of a promise", windows),
            Family("headwater_promise_cores", "gauge", "Cores of a promise", cores),
        ]
    return metrics


def _causes(causes: Mapping[str, int]) -> dict[str, int]:
    """Return how many windows broke of what, without the names of programs: each would be a series of its own."""
    windows: Counter[str] = Counter()
    for cause, count in causes.items():
        windows[cause.partition(":")[0]] += count
    return dict(windows)


def families_of(run: FlowRun) -> list[Family]:
    """Return what a run measures now."""
    promise = getattr(run, "promise", None)  # a promised run has one
    return families(run.flow.name, run.sample(), None if promise is None else promise())


def exposition(metrics: Iterable[Family]) -> str:
    r"""Write metrics as Prometheus reads them; those of one name, of several flows, stand together.

    >>> print(exposition([Family("up", "gauge", "It runs", [("", {"flow": 'a"b'}, 1.0)])]), end="")
    # HELP up It runs
    # TYPE up gauge
    up{flow="a\"b"} 1.0
    """
    blocks: dict[str, list[str]] = {}
    for each in metrics:
        name = each.name + ("_total" if each.kind == "counter" else "")
        head = [f"# HELP {name} {each.about}", f"# TYPE {name} {each.kind}"]
        lines = blocks.setdefault(name, head)
        for suffix, labels, value in each.values:
            label_text = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{each.name}{suffix}{{{label_text}}} {float(value)!r}")
    return "".join(f"{line}\n" for lines in blocks.values() for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class RunCollector:
    """Reads a run's measurements each time Prometheus asks."""

    def __init__(self, run: FlowRun) -> None:
        self._run = run

    def collect(self) -> Iterator[Any]:
        """Return every measurement of the run."""
        from prometheus_client.core import Metric

        for each in families_of(self._run):
            metric = Metric(each.name, each.about, each.kind)
            for suffix, labels, value in each.values:
                metric.add_sample(each.name + suffix, labels, value)
            yield metric


def check_port(port: int, address: str = "127.0.0.1") -> None:
    """Refuse, before anything runs, a port at which metrics could not be served.

    The port is let go of: what runs may fork, and is not to take it along.
    """
    if find_spec("prometheus_client") is None:
        raise RunError("metrics for Prometheus need prometheus-client: pip install 'headwater[prometheus]'")
    if not 0 <= port <= 65535:
        raise RunError(f"cannot serve metrics on port {port}: ports go from 1 to 65535")
    with _port_errors(port, address):
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind((address, port))
            probe.listen()


def serve(run: FlowRun, port: int, address: str = "127.0.0.1") -> Any:
    """Serve a run's metrics at http://address:port/metrics; returns the server."""
    check_port(port, address)
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(RunCollector(run))
    with _port_errors(port, address):
        server, _ = start_http_server(port, addr=address, registry=registry)
    return server


@contextmanager
def _port_errors(port: int, address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        why = "is the address one of this machine's?" if elsewhere else "is the port taken?"
        raise RunError(f"cannot serve metrics on {address}:{port}: {error.strerror}; {why}") from None
