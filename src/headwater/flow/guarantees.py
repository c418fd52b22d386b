"""What a flow promises of its records when it is killed and goes on from a checkpoint, by what its steps declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwater.flow.endpoints import DeliverySemantics, Resume, delivery_of, label_of, recognizes, resume_of
from headwater.flow.flow import Flow
from headwater.flow.steps import Apply, DeadLetters, Read, Step, Write

#: What holds of each record at a sink. "Neither" is the least: some may be lost, others there twice.
Holds = Literal["exactly once", "at least once", "at most once", "neither"]

_LOST = "what comes while it is away is gone"
_AGAIN: dict[Resume, str] = {
    "sender": "its sender sends again what was not acknowledged",
    "beginning": "it begins again",
}


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What holds at one sink, from end to end."""

    sink: str  #: the step
    holds: Holds
    delivery: DeliverySemantics  #: what the sink says of itself
    resumes: dict[str, Resume]  #: what the sources say that its records come from
    #: the links because of which no more holds, in words, each with its step; none where records are there exactly once
    weakest: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "sink": self.sink,
            "holds": self.holds,
            "delivery": self.delivery,
            "sources": self.resumes,
            "weakest": list(self.weakest),
        }

    def __str__(self) -> str:
        return f"{self.sink}: {self.holds}" + (f", since {'; '.join(self.weakest)}" if self.weakest else "")


def guarantees(flow: Flow) -> list[Guarantee]:
    """Return what holds at each sink.

    >>> from headwater import Flow, io
    >>> flow = Flow("levels")
    >>> levels = flow.read("levels", io.Mqtt("localhost", "levels", {"height": float}, qos=1))
    >>> levels.write("table", io.Sqlite("levels.db", "levels"))
    >>> print(*guarantees(flow))
    table: at least once, since source 'levels' (Mqtt(mqtt://localhost:1883/levels)): its sender sends again what was \
not acknowledged
    """
    return [_at(flow, step, step.kind) for step in flow.steps.values() if isinstance(step.kind, Write)]


def _at(flow: Flow, sink: Step, kind: Write) -> Guarantee:
    before = [step for step in flow.steps.values() if sink.name in flow.reached_from(step.name)]
    if any(isinstance(step.kind, DeadLetters) for step in before):
        before = list(flow.steps.values())  # any record may become a dead letter
    sources = {step.name: step.kind.source for step in before if isinstance(step.kind, Read)}
    resumes, delivery = {name: resume_of(source) for name, source in sources.items()}, delivery_of(kind.sink)
    stateful = [step for step in before if step.state not in ("none", "stream")]

    def link(name: str, why: str) -> str:
        return f"source {name!r} ({label_of(sources[name])}): {why}"

    losses = [link(name, _LOST) for name, resume in resumes.items() if resume == "never"]
    losses += [f"step {step.name!r} keeps state that it cannot save" for step in stateful if not _saves(step)]
    repeats = {name: _AGAIN[resume] for name, resume in resumes.items() if resume in _AGAIN}
    duplicates = [link(name, why) for name, why in repeats.items() if not recognizes(sources[name])]
    if delivery == "idempotent" and not stateful:
        duplicates = []  # the same record comes again and changes nothing; what was counted twice would be another
    if delivery == "neither":
        reason = getattr(kind.sink, "again", None) or "what comes again is there twice"
        duplicates.append(f"sink {sink.name!r} ({label_of(kind.sink)}): {reason}")
    holds: Holds = "exactly once"
    if losses or duplicates:
        holds = "neither" if losses and duplicates else "at most once" if losses else "at least once"
    return Guarantee(sink.name, holds, delivery, resumes, (*losses, *duplicates))


def _saves(step: Step) -> bool:
    return not isinstance(step.kind, Apply) or bool(step.kind.operator.saves)
