"""Measures what each step costs: seconds per record and per activation, selectivity, bytes, state."""

from __future__ import annotations

import platform
import time
from collections import defaultdict

import numpy as np

from headwater.data.batch import END, Batch
from headwater.data.column import Array
from headwater.errors import RunError
from headwater.flow.endpoints import at_rate
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.profile import Profile, StepProfile
from headwater.flow.steps import (
    Filter,
    KeyedScan,
    Kind,
    Map,
    Process,
    Read,
    Select,
    Split,
    Step,
    Union,
    Write,
)
from headwater.io import Discard
from headwater.operators import DEAD, Operator, Output, build

#: Batch sizes at which a step is timed; a line through the times gives its cost per record and per activation.
SIZES = (10, 50, 250)
_FULL_SPEED_HZ = 1e9


Samples = dict[str, tuple[list[Batch], float]]  #: by source: records, and the seconds that it took to get one


def sample_sources(flow: Flow, records: int) -> Samples:
    """Return the first records of each source; one that has none is an error."""
    samples = {step.name: _read(step, records) for step in flow.steps.values() if step.is_source}
    for name, (batches, _) in samples.items():
        if not batches:
            raise RunError(
                f"source {name!r} gave no record, so what the steps after it cost cannot be measured; "
                "give it some, with --input FILE if it cannot be read here",
                step=name,
            )
    return samples


def profile(flow: Flow, *, records: int = 20_000, samples: Samples | None = None) -> Profile:
    """Run a flow's first records, or these, through its steps, one thread and nothing written, and measure each step."""
    flow.check()
    batches = sample_sources(flow, records) if samples is None else samples
    runs = [_Pass(flow, batches, size) for size in SIZES for _ in range(2)]  # the first of a size warms up
    steps = {step.name: _profile(step, runs[1::2]) for step in flow.in_order() if step.name != DEAD_LETTERS}
    return Profile(flow.name, f"{platform.node()} ({platform.machine()})", steps)


def _read(step: Step, records: int) -> tuple[list[Batch], float]:
    """Return a source's first records, and the processor time it took to get one: not that of waiting for it."""
    assert isinstance(step.kind, Read)
    # what makes its records at a set rate need not be waited for
    source = at_rate(step.kind.source, _FULL_SPEED_HZ) or step.kind.source
    reader = source.open(lambda text, error: None)
    batches: list[Batch] = []
    count, busy_s, patience = 0, 0.0, 50
    try:
        while count < records and patience:
            start = time.process_time()
            batch = reader.read(min(1000, records - count), 0.1)
            busy_s += time.process_time() - start
            if batch is None:
                break
            patience = patience - 1 if not batch.length else 50
            if batch.length:
                batches.append(batch)
                count += batch.length
    finally:
        reader.close()
    return batches, busy_s / max(count, 1)


class _Pass:
    """One pass of all records through all steps at one batch size."""

    def __init__(self, flow: Flow, sources: Samples, size: int) -> None:
        self.busy_s: dict[str, float] = defaultdict(float)
        self.activations: dict[str, int] = defaultdict(int)
        self.records: dict[str, int] = defaultdict(int)
        self.bytes_in: dict[str, int] = defaultdict(int)
        self.out: dict[tuple[str, str], int] = defaultdict(int)
        self.bytes_out: dict[str, int] = defaultdict(int)
        self.state: dict[str, int] = {}
        self.read_s = {name: cost for name, (_, cost) in sources.items()}
        self._flow = flow
        streams: dict[tuple[str, str], list[Batch]] = defaultdict(list)
        for step in flow.in_order():
            if step.is_source:
                streams[step.name, "out"] = [part for b in sources[step.name][0] for part in _cut(b, size)]
                self._count_out(step.name, "out", streams[step.name, "out"])
            elif step.name != DEAD_LETTERS:
                self._run(step, _operator(step), streams, size)

    def _run(self, step: Step, operator: Operator, streams: dict[tuple[str, str], list[Batch]], size: int) -> None:
        ports = list(step.outputs)
        with np.errstate(all="ignore"):
            for number, edge in enumerate(step.inputs):
                for batch in streams[edge.step, edge.port]:
                    for part in _cut(batch, size):
                        self.activations[step.name] += 1
                        self.records[step.name] += part.length
                        self.bytes_in[step.name] += part.nbytes
                        start = time.perf_counter()
                        try:
                            result = operator.process(part, number)
                        except Exception:  # a dead letter when the flow runs; here it only costs time
                            result = None
                        self.busy_s[step.name] += time.perf_counter() - start
                        self._collect(step.name, ports, result, streams)
            self.state[step.name] = len(operator.snapshot())
            start = time.perf_counter()
            result = operator.advance(END)
            self.busy_s[step.name] += time.perf_counter() - start
            self._collect(step.name, ports, result, streams)
        operator.close()

    def _collect(
        self, name: str, ports: list[str], result: Output, streams: dict[tuple[str, str], list[Batch]]
    ) -> None:
        outputs = [(0, result)] if isinstance(result, Batch) else result or []
        for port, batch in outputs:
            if port != DEAD and batch.length:
                streams[name, ports[port]].append(batch)
                self._count_out(name, ports[port], [batch])

    def _count_out(self, name: str, port: str, batches: list[Batch]) -> None:
        self.out[name, port] += sum(batch.length for batch in batches)
        self.bytes_out[name] += sum(batch.nbytes for batch in batches)


def _profile(step: Step, runs: list[_Pass]) -> StepProfile:
    last = runs[-1]
    if step.is_source:
        out = max(1, last.out[step.name, "out"])
        return StepProfile(last.read_s[step.name], bytes_out=last.bytes_out[step.name] / out, form="io")
    activations = np.array([run.activations[step.name] for run in runs], float)
    records = np.array([run.records[step.name] for run in runs], float)
    seconds = np.array([run.busy_s[step.name] for run in runs])
    per_record, per_activation = _line(records, activations, seconds)
    n = max(1, last.records[step.name])
    out_total = max(1, sum(last.out[step.name, port] for port in step.outputs))
    return StepProfile(
        time_s=per_record,
        overhead_s=per_activation,
        selectivity={port: last.out[step.name, port] / n for port in step.outputs},
        bytes_in=last.bytes_in[step.name] / n,
        bytes_out=last.bytes_out[step.name] / out_total,
        state_bytes=last.state.get(step.name, 0),
        form=form_of(step.kind),
    )


def _line(records: Array, activations: Array, seconds: Array) -> tuple[float, float]:
    """Fit spent = taken · per_record + activations · per_activation, neither below 0."""
    if not records.any():
        return 0.0, 0.0
    fit, *_ = np.linalg.lstsq(np.stack([records, activations], axis=1), seconds, rcond=None)
    per_record, per_activation = (float(value) for value in fit)
    if per_activation < 0:
        return float(seconds.sum() / records.sum()), 0.0
    if per_record < 0:
        return 0.0, float(seconds.sum() / activations.sum())
    return per_record, per_activation


def _cut(batch: Batch, size: int) -> list[Batch]:
    if batch.length <= size:
        return [batch]
    return [batch.slice(at, min(at + size, batch.length)) for at in range(0, batch.length, size)]


def _operator(step: Step) -> Operator:
    if isinstance(step.kind, Write):
        step = Step(step.name, Write(Discard()), step.inputs, step.outputs, 1, step.where)
    return build(step)


def form_of(kind: Kind) -> str:
    """Say how a step computes: as expressions, compiled, in Python record by record, or as input and output."""
    match kind:
        case Filter() | Select() | Split() | Union():
            return "expressions"
        case Map(over="record") | Process():
            return "python"
        case Map():
            return "function"
        case KeyedScan():
            return "scan"
        case Read() | Write():
            return "io"
    return "compiled"
