"""Nothing that goes in is missing from the sums of a report: what every run of every test is held against."""

from __future__ import annotations

from headwater.flow.flow import Flow
from headwater.flow.steps import DeadLetters, EventTime, Select, Split, Step, Union
from headwater.metrics import Report, StepMetrics

#: a record that one of these takes comes out, is dead, or came too late; other steps may make fewer, or more, of it
_ONE_FOR_ONE = (EventTime, Select, Split, Union, DeadLetters)


def missing(flow: Flow, report: Report) -> list[str]:
    """Return where the sums of a report do not hold, in words."""
    steps = report.last.steps
    found = [why for step in flow.steps.values() for why in _in_step(step, steps[step.name])]
    for step in flow.steps.values():
        if not step.is_source:
            mine, given = steps[step.name], _given(flow, step, report)
            # on Spark, a record that goes to every key counts in each bucket that has some
            to_all = report.runner == "spark" and {"all", "key"} <= {put.grouping for put in step.inputs}
            if given != mine.records_in + mine.left and not (to_all and given < mine.records_in):
                found.append(f"{step.name!r} was given {given}, took {mine.records_in} and left {mine.left}")
    totals = {
        "records in": (
            report.last.records_in,
            sum(steps[s.name].records_in for s in flow.steps.values() if s.is_source),
        ),
        "dead letters": (report.dead_letters, sum(step.dead_letters for step in steps.values())),
        "late": (report.late, sum(step.late for step in steps.values())),
        "shed": (sum(report.shed.values()), sum(step.shed for step in steps.values())),
        "left": (report.left, sum(step.left for step in steps.values())),
    }
    found += [
        f"{what}: {total} in all, {by_step} by step" for what, (total, by_step) in totals.items() if total != by_step
    ]
    return found


def _in_step(step: Step, counted: StepMetrics) -> list[str]:
    """Hold what a step took against what became of it."""
    done = counted.records_out + counted.dead_letters + counted.late + counted.shed
    if step.is_source:
        done += counted.left
    elif not step.is_sink and not isinstance(step.kind, _ONE_FOR_ONE):
        return []
    if counted.records_in == done:
        return []
    return [f"{step.name!r} took {counted.records_in}, of which {done} are accounted for: {counted.to_json()}"]


def _given(flow: Flow, step: Step, report: Report) -> int:
    """Return how many records a step's senders say that they have sent to it."""
    steps = report.last.steps
    # what was on its way when the checkpoint was made that the run went on from
    restored = (report.extra.get("checkpoints") or {}).get("restored") or {}
    total: int = restored.get(step.name, 0)
    if isinstance(step.kind, DeadLetters):  # in a lane, those of other lanes come by an input
        after = flow.reached_from(step.name)
        total += sum(counted.dead_letters for name, counted in steps.items() if name not in after)
    for given in step.inputs:
        sender = steps[given.step]
        sent = sender.outs.get(given.port, 0) if sender.outs else sender.records_out
        # Spark counts what all copies of a step learn once
        total += sent * (steps[step.name].instances if given.grouping == "all" and report.runner != "spark" else 1)
    return total
