"""A site, as its coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from headwater.deploy.control.messages import Hello, Message, PartState, Report
from headwater.deploy.coordinator.lately import Lately
from headwater.deploy.coordinator.resources import resources_of
from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.coordinator.traffic import Traffic

_READING_S = 60.0  #: over which the rate of a source is taken
_SKEW_S = 60.0  #: from which on the clock of a site is told to be wrong
_FULL_BYTES = 50_000_000  #: on the disk of a site's state, below which that is told to be full


@dataclass(slots=True)
class Site:
    """A site, as far as it is known since the coordinator started."""

    hello: Hello
    address: str
    here: bool = True
    parts: dict[str, PartState] | None = None  #: None before it has reported
    prepared: dict[str, PartState] = field(default_factory=dict)  #: parts that will be installed
    report: Report | None = None
    traffic: Traffic = field(default_factory=Traffic)  #: what its part of the flow gives out
    reading: Traffic = field(default_factory=lambda: Traffic(_READING_S))  #: what its steps take in
    lately: Lately = field(default_factory=Lately)  #: what that took
    skew_s: float = 0.0
    handed_part: str = ""  #: the part that was sent by this connection
    preparing: str = ""  #: the part that was sent by this connection to be prepared
    asked_move: str = ""  #: the move for which its checkpoint was asked for by this connection
    last_words: list[Message] = field(default_factory=list)  #: the last words about what should be, by this connection
    words: int = 0  #: how often it was told what it should run, by this connection
    unfit: str = ""  #: why it does not take its part

    @property
    def is_up_to_date(self) -> bool:
        """Whether its report is of what it was told last: one that was on its way then may be of before."""
        return self.here and self.words > 0 and self.report is not None and self.report.heard == self.words

    def part_of(self, deployed: Deployment) -> PartState | None:
        """Return how its part of a flow fares; None if it has none, or has not reported."""
        return None if self.parts is None else self.parts.get(deployed.id_at(self.hello.name))

    def describe(self, deployed: Deployment | None) -> dict[str, Any]:
        """Describe it, and its part of a flow, for `headwater status`."""
        state, report = None if deployed is None else self.part_of(deployed), self.report
        words = [self.unfit or ("" if state is None else state.why)]
        if report is not None and report.resources is not None:
            words.append(report.resources.why)
        if report is not None and report.free_bytes < _FULL_BYTES:
            words.append(f"its disk is full: less than {_FULL_BYTES / 1e6:g} MB are left, and records wait for room")
        if abs(self.skew_s) > _SKEW_S:
            words.append(f"its clock is off by {round(self.skew_s, -1):,.0f} s")  # a word that stays is told once
        return {
            "kind": self.hello.kind,
            "here": self.here,
            "state": self._phase(deployed, state),
            "why": "; ".join(filter(None, words)),
            "address": self.address,
            "memory_bytes": self.hello.memory_bytes,
            "load": None if report is None else report.load,
            "free_bytes": None if report is None else report.free_bytes,
            **resources_of(self.hello.cores, report, state),
            "pid": None if state is None else state.pid,
            "lanes": 1 if state is None else state.lanes,
            "restarts": 0 if state is None else state.restarts,
            "records_in": 0 if state is None else state.records_in,
            "records_out": 0 if state is None else state.records_out,
            "dropped": 0 if state is None else sum(each.dropped for each in state.outgoing.values()),
            "outgoing": {} if state is None else msgspec.to_builtins(state.outgoing),
            "others": [id for id in self.parts or {} if deployed is None or id != deployed.id_at(self.hello.name)],
        }

    def _phase(self, deployed: Deployment | None, state: PartState | None) -> str:
        if deployed is not None and self.hello.name in deployed.ended:
            return "ended"
        if not self.here:
            return "away"
        return "no part" if state is None else state.phase
