"""What a sample says: how each step fares, which one is the bottleneck, and what would help. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headwater.web.figures import count, milliseconds, percent, rate

State = Literal["busy", "at work", "waiting", "held back", "idle"]

_BUSY, _WAITS, _HELD = 0.5, 0.3, 0.05  #: shares of the time from which on a step, or a source, is called so
_STARVED = 0.6  #: of what it could have had: with less, a process waited for a processor
_FULL = 0.85  #: a step, or all together, at so much of a core has hardly room


@dataclass(frozen=True, slots=True)
class StepNow:
    """One step in the time since the sample before; shares are of that time, and add up to 1."""

    name: str
    role: str
    instances: int
    in_hz: float
    out_hz: float
    queue: int
    t_q_ms: float
    t_s_ms: float
    t_c_ms: float
    p50_ms: float | None  #: of the times that records were here, from the queue until done; None where nobody counts
    p99_ms: float | None
    cost_us: float
    busy: float  #: a worker was here
    waiting: float  #: records were here, and no worker
    held: float  #: of a source: the queues behind it were full
    dead: int  #: since the start, as the next ones
    late: int
    shed: int
    state_bytes: int

    @property
    def idle(self) -> float:
        """The share of the time in which nothing was here to do."""
        return max(0.0, 1 - self.busy - self.waiting - self.held)

    @property
    def state(self) -> State:
        """How the step fares, in a word."""
        if self.held >= _HELD:
            return "held back"
        if self.busy >= _BUSY and self.busy >= self.waiting:
            return "busy"
        if self.waiting >= _WAITS:
            return "waiting"
        return "at work" if self.in_hz > 0 or self.out_hz > 0 else "idle"

    @property
    def cores(self) -> float:
        """How much of a core it takes."""
        return self.busy * self.instances


def steps_now(graph: Mapping[str, Any], sample: Mapping[str, Any]) -> list[StepNow]:
    """Return how every step of a drawing fares by a sample; one that the sample does not know is idle."""
    last, span_s = sample["last"], max(float(sample["last"]["at_s"]), 1e-9)
    recent = {step["name"]: step for step in last["steps"]}
    total = {step["name"]: step for step in sample["total"]["steps"]}
    held = min(1.0, last["backpressure_s"] / span_s)
    return [
        _step(step, recent.get(step["name"], {}), total.get(step["name"], {}), span_s, held) for step in graph["steps"]
    ]


def cells_of(step: StepNow) -> list[str]:
    """Return what tables begin the row of a step with: name, state, rates, queue, and times."""
    return [
        step.name,
        step.state,
        rate(step.in_hz),
        rate(step.out_hz),
        count(step.queue),
        milliseconds(step.t_q_ms),
        milliseconds(step.t_s_ms),
        milliseconds(step.t_c_ms),
        milliseconds(step.p50_ms),
        milliseconds(step.p99_ms),
    ]


def _step(
    node: Mapping[str, Any], recent: Mapping[str, Any], total: Mapping[str, Any], span_s: float, held: float
) -> StepNow:
    instances = max(1, node["parallel"])
    is_source = node["role"] == "source"
    busy = min(1.0, recent.get("cost_us", 0.0) * recent.get("in", 0) / 1e6 / span_s / instances)
    waiting = 0.0 if is_source else max(0.0, recent.get("utilisation", 0.0) - busy)
    return StepNow(
        name=node["name"],
        role=node["role"],
        instances=instances,
        in_hz=recent.get("in", 0) / span_s,
        out_hz=recent.get("out", 0) / span_s,
        queue=recent.get("queue", 0),
        t_q_ms=recent.get("t_q_ms", 0.0),
        t_s_ms=recent.get("t_s_ms", 0.0),
        t_c_ms=recent.get("t_c_ms", 0.0),
        p50_ms=recent.get("p50_ms"),
        p99_ms=recent.get("p99_ms"),
        cost_us=recent.get("cost_us", 0.0),
        busy=busy,
        waiting=min(waiting, 1 - busy),
        held=min(held, 1 - busy) if is_source else 0.0,
        dead=total.get("dead_letters", 0),
        late=total.get("late", 0),
        shed=total.get("shed", 0),
        state_bytes=total.get("state_bytes", 0),
    )


def streams_now(graph: Mapping[str, Any], sample: Mapping[str, Any]) -> list[float]:
    """Return the records per second on each stream of a drawing, in its order."""
    span_s = max(float(sample["last"]["at_s"]), 1e-9)
    recent = {step["name"]: step for step in sample["last"]["steps"]}
    rates = []
    for stream in graph["streams"]:
        sender = recent.get(stream["from"], {})
        by_port = sender.get("outputs", {})
        rates.append(by_port.get(stream["port"], sender.get("out", 0)) / span_s)
    return rates


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits a flow: in a sentence, with what would help, and the step that it is about, if it is about one."""

    summary: str
    advice: str = ""
    step: str = ""
    grave: bool = False


def verdict(steps: Sequence[StepNow], cores: float) -> Verdict:
    """Say what limits a flow, from how its steps fare and the cores that its process had."""
    sources = [step for step in steps if step.role == "source"]
    others = [step for step in steps if step.role != "source"]
    read_hz = sum(step.out_hz for step in sources)
    if not any(step.in_hz for step in steps) and not read_hz:
        waiting = sum(step.queue for step in steps)
        if waiting:
            return Verdict(
                f"Nothing moves, and {count(waiting)} records wait.",
                "A step may hang: the log of the flow says which one, and since when.",
                grave=True,
            )
        return Verdict(
            "Nothing comes in.", "The sources wait for records: is the broker, the file or the device they read there?"
        )
    if not others:
        return Verdict("The flow has sources alone.")
    worst = max(others, key=lambda step: step.busy)
    together = sum(step.cores for step in steps)
    held = max((step.held for step in sources), default=0.0)
    # two workers may both be at work where Python's lock lets one compute: a core is all that such steps can have
    if together >= _FULL and cores < min(together, 1.0) * _STARVED:
        return Verdict(
            f"Something else keeps this machine busy: steps were at work for {together:.2f} of a core's time, and their "
            f"process had {cores:.2f} of one.",
            "See what else runs here. A promise (--promise) reserves cores for a flow, whatever else does.",
            worst.name,
            grave=True,
        )
    capacity = (
        f"at {milliseconds(worst.cost_us / 1000)} a record it can do about {rate(1e6 / max(worst.cost_us, 1e-3))}"
    )
    if worst.busy >= _FULL:
        how = f"held back {percent(held)} of the time" if held >= _HELD else "not held back yet"
        return Verdict(
            f"Step {worst.name} is the bottleneck: busy {percent(worst.busy)} of the time; {capacity}. "
            f"The sources are {how}.",
            "Run it in several lanes (--lanes auto) where its input is split by key, or make it cheaper: a record function "
            "written as an expression or over batches costs a tenth.",
            worst.name,
            grave=held >= _HELD,
        )
    if held >= _HELD:
        fullest = max(others, key=lambda step: step.queue)
        if together >= _FULL:
            return Verdict(
                f"The worker is at its limit: all steps together take {together:.2f} of a core, most of it {worst.name} "
                f"({percent(worst.busy)}). The sources are held back {percent(held)} of the time.",
                "More lanes (--lanes auto) use more cores; below that, the step to make cheaper is the one that is named.",
                worst.name,
                grave=True,
            )
        return Verdict(
            f"The sources are held back {percent(held)} of the time, and {count(fullest.queue)} records wait for step "
            f"{fullest.name}, which is busy only {percent(fullest.busy)}.",
            "It waits for something outside the flow: a database, a broker or a disk that takes long.",
            fullest.name,
            grave=True,
        )
    room = 1 / max(together, 1e-3)
    return Verdict(
        f"Nothing is held back. The busiest step is {worst.name}, {percent(worst.busy)} of the time; all together take "
        f"{together:.2f} of a core.",
        f"There is room for about {count(round(room, 1))} times as much on one core." if together < _FULL else "",
        worst.name,
    )
