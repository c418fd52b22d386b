"""A moment of a flow as it was, for the flow as it is now: steps that were added, removed or renamed since.

A step goes on with the state that it had under its name, or under the one that it had then. One that is new begins empty,
and with the time that has come behind what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.data.batch import NO_WATERMARK
from headwater.errors import RunError, listed, suggestion
from headwater.flow.flow import Flow
from headwater.flow.identity import differs, identity_of
from headwater.flow.steps import Read, Step
from headwater.operators import build
from headwater.operators.moment import Moment, StepMoment


def fitted(
    moment: Moment, was: Flow, flow: Flow, *, renamed: Mapping[str, str] | None = None, allow_dropped: bool = False
) -> Moment:
    """Return a moment of `was` as one of `flow`; `renamed` says what steps are called now, by what they were called.

    Raises RunError where what was kept does not fit, or would be lost and nobody said that it may be.
    """
    names = {now: before for before, now in (renamed or {}).items()}
    _check_names(names, was, flow)
    steps: dict[str, StepMoment] = {}
    for step in flow.in_order():
        if step.is_source or step.is_sink:
            continue
        before = moment.steps.get(names.get(step.name, step.name))
        if before is None:
            watermarks = (
                flow.steps[each.step].time_behind(steps[each.step].watermark)
                for each in step.inputs
                if each.step in steps
            )
            steps[step.name] = StepMoment(build(step), min(watermarks, default=NO_WATERMARK))
        else:
            then = was.steps[names.get(step.name, step.name)]
            steps[step.name] = replace(before, operator=_gone_on(then, step, before))
    _check_dropped(moment, {names.get(name, name) for name in steps}, allow_dropped)
    _check_sources(was, flow)
    _check_waiting(moment, flow)
    sources = [step.name for step in flow.steps.values() if step.is_source]
    return replace(
        moment,
        steps=steps,
        positions={name: moment.positions.get(name) for name in sources if name not in moment.logs},
        logs={name: log for name, log in moment.logs.items() if name in sources},
    )


def _check_names(names: Mapping[str, str], was: Flow, flow: Flow) -> None:
    for now, before in names.items():
        for name, steps, when in ((before, was.steps, "had"), (now, flow.steps, "has")):
            if name not in steps:
                raise RunError(f"flow {flow.name!r} {when} no step {name!r}{suggestion(name, list(steps))}")
            if steps[name].is_source or steps[name].is_sink:
                raise RunError(f"step {name!r} is a source or a sink, which is known by its name: name it as before")
        if now in was.steps:
            raise RunError(f"step {before!r} cannot be called {now!r} now: there was a step {now!r} then, too")


def _gone_on(then: Step, now: Step, moment: StepMoment) -> Any:
    """Return the operator of a step with what it had kept."""
    state = moment.operator.snapshot()
    operator = build(now)
    if not state:
        return operator
    before, after = _described(then), _described(now)
    for what in ("kind", "keys", "columns"):
        if before[what] != after[what]:
            raise RunError(
                f"step {now.name!r} had other {what} then: {before[what]}, now {after[what]}; what it has kept does not "
                "fit. Give the step a new name, and it begins empty"
            )
    if then.keeps != now.keeps:
        raise RunError(
            f"step {now.name!r} was '{then.keeps}' then, and is '{now.keeps}' now; what it has kept does not fit. Give the "
            "step a new name, and it begins empty"
        )
    operator.restore(state)
    return operator


def _described(step: Step) -> dict[str, str]:
    return {
        "kind": type(step.kind).__name__,
        "keys": "; ".join(", ".join(each.keys) or "none" for each in step.inputs),
        "columns": "; ".join(f"({schema})" for schema in step.outputs.values()),
    }


def _check_dropped(moment: Moment, staying: set[str], allow_dropped: bool) -> None:
    missing = [name for name, step in moment.steps.items() if name not in staying and step.operator.snapshot()]
    if missing and not allow_dropped:
        raise RunError(
            f"state of {listed(missing)} would be lost: the flow has no such step any more. Say what it is called now "
            "(--renamed OLD=NEW), or that it may be lost (--allow-dropped-state)"
        )


def _check_sources(was: Flow, flow: Flow) -> None:
    """Refuse a source that is another, or an old one under another name: it would be read from its beginning."""
    before = {step.name: step.kind.source for step in was.steps.values() if isinstance(step.kind, Read)}
    for step in flow.steps.values():
        if not isinstance(step.kind, Read):
            continue
        if step.name in before:
            difference = differs(step.kind.source, identity_of(before[step.name]))
            if difference:
                raise RunError(f"source {step.name!r} is another: {difference}")
            continue
        for name, source in before.items():
            if name not in flow.steps and not differs(step.kind.source, identity_of(source)):
                raise RunError(
                    f"source {step.name!r} was called {name!r} then; under another name it would be read from its "
                    "beginning, into state that has its records. Name it as before"
                )


def _check_waiting(moment: Moment, flow: Flow) -> None:
    missing = [name for name, batches in moment.waiting.items() if batches and name not in flow.steps]
    if missing:
        raise RunError(
            f"records wait for {listed(missing)}, which the flow does not have any more; let them be written first"
        )
