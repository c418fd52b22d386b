"""What lanes say of themselves, and what that is together: one sample, one report, by the steps of the flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.engine.lanes.wire import sample_from_wire
from headwater.engine.lanes.wiring import Wiring
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.histogram import Histogram
from headwater.metrics import Report, Sample, StepMetrics, added_accounts

_EXAMPLES = 5


class Accounts:
    """What each lane but the first, which is asked itself, has said last."""

    def __init__(self, flow: Flow, wiring: Wiring) -> None:
        self._flow, self._wiring = flow, wiring
        self.samples: dict[int, Sample] = {}
        self.reports: dict[int, dict[str, Any]] = {}  #: of those that have ended
        self._backlogs: dict[int, dict[str, int]] = {}  #: how many records wait at the outlets of each

    def clear(self) -> None:
        """Forget all lanes: others begin in their place."""
        for by_lane in (self.samples, self.reports, self._backlogs):
            by_lane.clear()

    def hear(self, lane: int, message: Mapping[str, Any]) -> None:
        """Take a lane's sample, or its last in its report."""
        self.samples[lane] = sample_from_wire(message.get("sample") or message["report"]["last"])
        self._backlogs[lane] = message["kept"]

    def sample(self, first: Sample, backlog: Mapping[str, int], at_s: float) -> Sample:
        """Return the sample of all lanes, given the first's and what waits at its outlets."""
        samples = [first, *(self.samples[lane] for lane in sorted(self.samples))]
        return merged_sample(self._flow, samples, self._waiting(samples, backlog), at_s)

    def _waiting(self, samples: list[Sample], backlog: Mapping[str, int]) -> Counter[str]:
        """Return what waits between lanes, by the step that takes it: at inlets and outlets, and in rings."""
        waiting: Counter[str] = Counter()
        for name, takers in self._wiring.takers.items():
            count = sum(sample.steps[name].left for sample in samples if name in sample.steps)
            count += sum(each.get(name, 0) for each in (backlog, *self._backlogs.values()))
            for taker in takers:
                waiting[taker] += count
        for crossing in self._wiring.crossings:
            for taker in crossing.takers:
                waiting[taker] += crossing.waiting()
        for sample in samples[1:]:
            if DEAD_LETTERS in sample.steps:
                waiting[DEAD_LETTERS] += sample.steps[DEAD_LETTERS].left
        return waiting

    def report(
        self, first: Report, last: Sample, samples: Sequence[Sample], error: str | None, extra: dict[str, Any]
    ) -> Report:
        """Return the report of all lanes, given the first's and the last sample of all."""
        others = list(self.reports.values())
        shed = Counter(first.shed)
        for other in others:
            shed.update(other["shed"])
        sinks = dict(first.extra.get("sinks", {}))
        for name, account in ((name, account) for other in others for name, account in other["sinks"].items()):
            sinks[name] = added_accounts(sinks.get(name, {}), account)
        examples = [letter for each in (first.examples, *(other["examples"] for other in others)) for letter in each]
        return Report(
            flow=self._flow.name,
            runner=first.runner,
            seconds=last.at_s,
            last=last,
            samples=list(samples),
            dead_letters=sum(step.dead_letters for step in last.steps.values()),
            shed=dict(shed),
            left=sum(step.left for step in last.steps.values()),
            error=error,
            examples=examples[:_EXAMPLES],
            decisions=first.decisions + sum(other["decisions"] for other in others),
            decision_s=first.decision_s + sum(other["decision_s"] for other in others),
            extra={**first.extra, **({"sinks": sinks} if sinks else {}), **extra},
        )


def merged_sample(flow: Flow, samples: Sequence[Sample], waiting: Mapping[str, int], at_s: float) -> Sample:
    """Add up samples of lanes, that of lane 0 first; `waiting` is what waits between them, by the step that takes it."""
    steps: dict[str, StepMetrics] = {name: StepMetrics(name, instances=0) for name in flow.steps}
    latency, emit_latency = Histogram(), Histogram()
    out: Counter[str] = Counter()
    for lane, sample in enumerate(samples):
        latency.merge(sample.latency)
        emit_latency.merge(sample.emit_latency)
        out.update({name: count for name, count in sample.records_out.items() if name in flow.steps})
        for name, step in sample.steps.items():
            if name in steps and not (lane and name == DEAD_LETTERS):  # which only hands on what lane 0 will count
                steps[name] = steps[name].plus(step)
    for name, count in waiting.items():
        steps[name].queue += count
    records_in = sum(steps[name].records_in for name, step in flow.steps.items() if step.is_source)
    held_s = max(sample.backpressure_s for sample in samples)
    return Sample(at_s, steps, latency, emit_latency, records_in, dict(out), held_s)
