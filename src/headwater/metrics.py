"""One vocabulary of measurements for every runner: counters of a step, a sample of a run, a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any, TypeVar

import numpy as np

from headwater.histogram import Histogram

_TO_A_DOUBLING = 8  #: buckets of the times at a step, each 9 % wide
K = TypeVar("K", str, int)


def bucket_of(time_ns: int) -> int:
    """Return the bucket of a time at a step; below a nanosecond counts as one.

    >>> bucket_of(1_000_000) - bucket_of(500_000)
    8
    """
    return int(_TO_A_DOUBLING * log2(time_ns)) if time_ns > 1 else 0


@dataclass(slots=True)
class StepMetrics:
    """What one step (all its instances together) did in some span of time."""

    name: str
    records_in: int = 0
    records_out: int = 0
    activations: int = 0
    #: records that wait; at a source, those it has read and not handed over
    queue: int = 0
    #: records that were taken from the queue, or are on their way to it, and are not done with
    in_hand: int = 0
    #: sums over records, in nanoseconds: waiting behind others, waiting for a worker at the head, being computed
    t_q_ns: int = 0
    t_s_ns: int = 0
    t_c_ns: int = 0
    #: time that workers spent here: divided by records, the cost of one
    busy_ns: int = 0
    #: time with nothing to do, summed over instances
    t_empty_ns: int = 0
    instances: int = 1
    span_ns: int = 0
    dead_letters: int = 0
    shed: int = 0
    #: records that came too late to count: on their way by the step's late output, or dropped where nobody reads it
    late: int = 0
    #: how often something that failed was tried again, by the step's `retry`
    retries: int = 0
    #: records by output, those that came too late included, of a step that has several
    outs: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0  #: of what it keeps, as the last checkpoint has it; 0 without one
    #: how long records were here, from the queue until they were done: records by bucket, see `bucket_of`
    times: dict[int, int] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Records that came this far and were not processed: when a run is over, what it has left."""
        return self.queue + self.in_hand

    @property
    def utilisation(self) -> float:
        """ρ_w = 1 − T_empty / T_w, the mean over instances."""
        if not self.span_ns:
            return 0.0
        return min(1.0, max(0.0, 1 - self.t_empty_ns / (self.span_ns * self.instances)))

    def time_ms(self, share: float) -> float | None:
        """Return how long so great a share of the records was here at most, within 5 %; None where nobody has counted.

        >>> slow = StepMetrics("slow", times={bucket_of(1_000_000): 90, bucket_of(8_000_000): 10})
        >>> [round(slow.time_ms(share)) for share in (0.5, 0.9, 0.99)], StepMetrics("idle").time_ms(0.5)
        ([1, 1, 8], None)
        """
        rest = share * sum(self.times.values())
        for bucket in sorted(self.times):
            rest -= self.times[bucket]
            if rest <= 0 and self.times[bucket]:
                return round(2 ** ((bucket + 0.5) / _TO_A_DOUBLING) / 1e6, 6)
        return None

    def since(self, earlier: StepMetrics) -> StepMetrics:
        """Return what was done since an earlier reading of the same step."""
        now = {name: getattr(self, name) - getattr(earlier, name) for name in _COUNTED}
        now |= {name: getattr(self, name) for name in (*_STANDING, "instances")}
        outs = {port: count - earlier.outs.get(port, 0) for port, count in self.outs.items()}
        times = {bucket: count - earlier.times.get(bucket, 0) for bucket, count in self.times.items()}
        return StepMetrics(self.name, outs=outs, times=times, **now)

    def then(self, later: StepMetrics) -> StepMetrics:
        """Return what the step did in two runs, one after the other."""
        both = {name: getattr(self, name) + getattr(later, name) for name in _COUNTED}
        both |= {name: getattr(later, name) for name in _STANDING}
        both["instances"] = max(self.instances, later.instances)
        outs, times = _summed(self.outs, later.outs), _summed(self.times, later.times)
        return StepMetrics(self.name, outs=outs, times=times, **both)

    def plus(self, other: StepMetrics) -> StepMetrics:
        """Return the sum of two instances of one step."""
        both = {name: getattr(self, name) + getattr(other, name) for name in (*_COUNTED, *_STANDING, "instances")}
        both["span_ns"] = max(self.span_ns, other.span_ns)
        outs, times = _summed(self.outs, other.outs), _summed(self.times, other.times)
        return StepMetrics(self.name, outs=outs, times=times, **both)

    def to_json(self) -> dict[str, Any]:
        """Describe the step in the keys that scripts rely on; times are means per record."""
        n = max(1, self.records_in)
        return {
            "name": self.name,
            "in": self.records_in,
            "out": self.records_out,
            "queue": self.queue,
            "activations": self.activations,
            "t_q_ms": round(self.t_q_ns / n / 1e6, 6),
            "t_s_ms": round(self.t_s_ns / n / 1e6, 6),
            "t_c_ms": round(self.t_c_ns / n / 1e6, 6),
            "p50_ms": self.time_ms(0.5),
            "p99_ms": self.time_ms(0.99),
            "cost_us": round(self.busy_ns / n / 1e3, 4),
            "utilisation": round(self.utilisation, 4),
            "dead_letters": self.dead_letters,
            "late": self.late,
            "shed": self.shed,
            "retries": self.retries,
            "left": self.left,
            "state_bytes": self.state_bytes,
            **({"outputs": self.outs} if self.outs else {}),
        }


_COUNTED = (
    "records_in",
    "records_out",
    "activations",
    "t_q_ns",
    "t_s_ns",
    "t_c_ns",
    "busy_ns",
    "t_empty_ns",
    "span_ns",
    "dead_letters",
    "shed",
    "late",
    "retries",
)
#: what is true of a moment and not of a span
_STANDING = ("queue", "in_hand", "state_bytes")


def _summed(counts: dict[K, int], others: dict[K, int]) -> dict[K, int]:
    return {name: counts.get(name, 0) + others.get(name, 0) for name in counts | others}


def added_accounts(account: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add up what two writers of one sink tell of their records; what is no number is the first one's.

    >>> added_accounts({"taken": 2, "dropped": {"log full": 1}}, {"taken": 3, "dropped": {"too old": 1}, "mistakes": 1})
    {'taken': 5, 'dropped': {'too old': 1, 'log full': 1}, 'mistakes': 1}
    """
    return {
        what: _added(account[what], other[what]) if what in account and what in other else either
        for what, either in {**other, **account}.items()
    }


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return added_accounts(one, other)
    is_count = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return one + other if is_count else one


def variation(values: list[float]) -> float:
    """Return the coefficient of variation: standard deviation over mean.

    >>> variation([1.0, 1.0]), variation([0.0, 2.0])
    (0.0, 1.0)
    """
    mean = float(np.mean(values)) if values else 0.0
    return float(np.std(values)) / mean if mean else 0.0


@dataclass(slots=True)
class Sample:
    """The state of a run at one moment: everything counted since it began."""

    at_s: float
    steps: dict[str, StepMetrics]
    latency: Histogram
    emit_latency: Histogram
    records_in: int
    records_out: dict[str, int]
    backpressure_s: float = 0.0
    #: how far event time has come at each step that reads it, in microseconds since 1970; where the runner tells
    watermarks_us: dict[str, int] = field(default_factory=dict)

    def since(self, earlier: Sample) -> Sample:
        """Return what was counted since an earlier sample of the same run; its `at_s` is how long that was."""
        steps = {
            name: step.since(earlier.steps[name]) if name in earlier.steps else step
            for name, step in self.steps.items()
        }
        return Sample(
            self.at_s - earlier.at_s,
            steps,
            self.latency.minus(earlier.latency),
            self.emit_latency.minus(earlier.emit_latency),
            self.records_in - earlier.records_in,
            {sink: count - earlier.records_out.get(sink, 0) for sink, count in self.records_out.items()},
            self.backpressure_s - earlier.backpressure_s,
            self.watermarks_us,
        )

    def then(self, later: Sample) -> Sample:
        """Return what was counted in this run and, after it, in a later one."""
        steps = self.steps | {
            name: self.steps[name].then(step) if name in self.steps else step for name, step in later.steps.items()
        }
        return Sample(
            self.at_s + later.at_s,
            steps,
            self.latency.copy().plus(later.latency),
            self.emit_latency.copy().plus(later.emit_latency),
            self.records_in + later.records_in,
            _summed(self.records_out, later.records_out),
            self.backpressure_s + later.backpressure_s,
            later.watermarks_us,
        )

    def to_json(self) -> dict[str, Any]:
        """Describe the sample in the keys of a report."""
        return {
            "at_s": round(self.at_s, 3),
            "records_in": self.records_in,
            "records_out": self.records_out,
            "latency_ms": self.latency.to_json(),
            "latency_counts": self.latency.by_doubling(),
            "emit_latency_ms": self.emit_latency.to_json(),
            "backpressure_s": round(self.backpressure_s, 4),
            "watermarks_us": self.watermarks_us,
            "steps": [step.to_json() for step in self.steps.values()],
        }


#: the columns of a printed report, and what of a step each shows
_SHOWN = {
    "in": "records_in",
    "out": "records_out",
    "dead": "dead_letters",
    "late": "late",
    "shed": "shed",
    "left": "left",
    "busy": "utilisation",
}


def _cell(step: StepMetrics, column: str) -> str:
    value = getattr(step, _SHOWN[column])
    return f"{value:.0%}" if column == "busy" else f"{value:,}"


def _account_text(account: dict[str, Any]) -> str:
    """Write what a sink tells of its records.

    >>> _account_text({"forwarded": 1200, "waiting": 0, "dropped": {"log full": 3}})
    '1,200 forwarded, 0 waiting, 3 dropped: log full'
    """
    counts = [f"{count:,} {what.replace('_', ' ')}" for what, count in account.items() if isinstance(count, int)]
    parts = account.items()
    counts += [f"{n:,} {what}: {why}" for what, by in parts if isinstance(by, dict) for why, n in by.items()]
    return ", ".join(counts)


@dataclass(slots=True, repr=False)
class Report:
    """What a run did, in the same words whatever ran it; printed, a table of its steps."""

    flow: str
    runner: str
    seconds: float
    last: Sample
    samples: list[Sample] = field(default_factory=list)
    dead_letters: int = 0
    shed: dict[str, int] = field(default_factory=dict)
    left: int = 0
    #: what ended the run, if it did not come to its end
    error: str | None = None
    decisions: int = 0
    decision_s: float = 0.0
    #: the first few dead letters, to show a user what went wrong
    examples: list[dict[str, str]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def throughput(self) -> float:
        """Records written by all sinks per second."""
        return sum(self.last.records_out.values()) / self.seconds if self.seconds else 0.0

    @property
    def late(self) -> int:
        """Records that came too late for a window or a join."""
        return sum(step.late for step in self.last.steps.values())

    @property
    def retries(self) -> int:
        """How often something that failed was tried again."""
        return sum(step.retries for step in self.last.steps.values())

    def __repr__(self) -> str:
        out = sum(self.last.records_out.values())
        return f"<Report of {self.flow!r} on {self.runner}: {self.last.records_in:,} in, {out:,} out, {self.seconds:.2f} s>"

    def __str__(self) -> str:
        steps = list(self.last.steps.values())
        rows = [("step", *_SHOWN), *((s.name, *(_cell(s, name) for name in _SHOWN)) for s in steps)]
        total = {name: sum(getattr(s, _SHOWN[name]) for s in steps) for name in ("dead", "late", "shed", "left")}
        out = sum(self.last.records_out.values())
        sums = {"in": self.last.records_in, "out": out, **total}
        rows.append(("in all", *(f"{sums[name]:,}" if name in sums else "" for name in _SHOWN)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        latency = self.last.latency.to_json()
        lines = [
            f"{self.flow} on {self.runner}: {self.seconds:.2f} s, {self.throughput:,.0f} records/s written, latency p50 "
            f"{latency['p50']:g} ms, p95 {latency['p95']:g} ms, p99 {latency['p99']:g} ms",
            *table,
            *(f"shed {count:,}: {reason}" for reason, count in self.shed.items()),
            *(f"tried again {s.retries:,} times: step {s.name}" for s in steps if s.retries),
            *(f"{step}: {_account_text(account)}" for step, account in self.extra.get("sinks", {}).items()),
            *(f"dead letter from {letter['step']}: {letter['error']}" for letter in self.examples),
            *([f"ended by: {self.error}"] if self.error else []),
        ]
        return "\n".join(lines)

    def then(self, later: Report) -> Report:
        """Return what this run and a later one did, as if it were one; what sinks tell is as it was at the end."""
        return Report(
            flow=self.flow,
            runner=later.runner,
            seconds=self.seconds + later.seconds,
            last=self.last.then(later.last),
            samples=[*self.samples, *(self.last.then(sample) for sample in later.samples)],
            dead_letters=self.dead_letters + later.dead_letters,
            shed=_summed(self.shed, later.shed),
            left=self.left + later.left,
            error=self.error or later.error,
            decisions=self.decisions + later.decisions,
            decision_s=self.decision_s + later.decision_s,
            examples=self.examples or later.examples,
            extra=self.extra | later.extra,
        )

    def utilisation_cv(self) -> float:
        """Return the coefficient of variation of ρ_w over the steps that compute something, for the whole run."""
        return variation([step.utilisation for step in self.last.steps.values() if step.activations])

    def to_json(self) -> dict[str, Any]:
        """Describe the run in the keys that scripts rely on."""
        return {
            "flow": self.flow,
            "runner": self.runner,
            "seconds": round(self.seconds, 3),
            "records_in": self.last.records_in,
            "records_out": self.last.records_out,
            "dead_letters": self.dead_letters,
            "late": self.late,
            "shed": sum(self.shed.values()),
            "shed_by": self.shed,
            "retries": self.retries,
            "left": self.left,
            "error": self.error,
            "throughput": round(self.throughput, 1),
            "latency_ms": self.last.latency.to_json(),
            "emit_latency_ms": self.last.emit_latency.to_json(),
            "backpressure_s": round(self.last.backpressure_s, 4),
            "utilisation_cv": round(self.utilisation_cv(), 4),
            "decisions": self.decisions,
            "decision_us": round(self.decision_s / self.decisions * 1e6, 3) if self.decisions else 0.0,
            "steps": [step.to_json() for step in self.last.steps.values()],
            "dead_letter_examples": self.examples,
            **self.extra,
        }
