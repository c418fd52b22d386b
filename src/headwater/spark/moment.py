"""A checkpoint of Spark's as a moment of its flow, for another runner, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headwater.data.batch import END, NO_WATERMARK
from headwater.errors import HeadwaterError, RunError
from headwater.flow.endpoints import Source, comes_once, resume_of, writes_in_parts
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.ranges import Offset, RangeRequest, Sizes, ranges_of
from headwater.flow.steps import EventTime, Read, Step, Write
from headwater.io.jdbc import Jdbc
from headwater.io.log import Log
from headwater.io.receiving.rounds import batches_of, entries, last_of, pack_round
from headwater.io.spark_table import SparkTable
from headwater.io.transactions import ledger_of
from headwater.io.transactions.journal import Journal
from headwater.io.transactions.outbox import deliver_after, undelivered
from headwater.operators import Operator, build
from headwater.operators.moment import Moment, StepMoment
from headwater.operators.operator import DEAD, Select
from headwater.operators.snapshot import pack_state as packed_state
from headwater.spark.checkpoint import Checkpoint
from headwater.spark.executor import Executor
from headwater.spark.native import reads, writes
from headwater.spark.seeds import TakenOver, waiting_in, write_seeds
from headwater.spark.stages import Layout, Stage, cut
from headwater.spark.states import states_of
from headwater.spark.times import Times, known_times

_AT_ONCE = RangeRequest(Sizes(1))


def moment_of(folder: Path, flow: Flow, *, ended: bool = False) -> Moment:
    """Return what a flow was behind the last micro-batch that is done; nothing is changed in the folder.

    Spark is started where it has kept state, which only it can read. Raises RunError where the flow cannot go on from it, as
    where it has come to its end, unless that may have `ended`.
    """
    checkpoint = Checkpoint(folder)
    buckets = checkpoint.buckets()
    layout = cut(flow, buckets or 1)
    checkpoint.check(flow, buckets, ended=ended)
    batch, takeover = checkpoint.committed(), checkpoint.takeover()
    if batch < 0 and takeover is None:
        raise RunError(f"no micro-batch of checkpoint {folder} is done yet: there is nothing to go on from")
    part = batch if takeover is None else takeover.after if batch < 0 else takeover.first + batch
    moment = Moment(part, folder / "sinks")
    if takeover is not None:
        moment.waiting = waiting_in(checkpoint.seeds, takeover)
    for index, step in enumerate(flow.steps.values()):
        if isinstance(step.kind, Read):
            _open_source(moment, checkpoint, flow, step.name, index, batch)
    states = {at: msgspec.msgpack.decode(data) for at, data in states_of(checkpoint, layout, batch).items()}
    times = known_times(layout, states)
    moment.source_watermarks = {name: at for name, at in times.items() if flow.steps[name].is_source}
    for step in flow.steps.values():
        if not (step.is_source or step.is_sink):
            moment.steps[step.name] = _together(layout, step, states, times.get(step.name, NO_WATERMARK))
    return moment


def write_moment(
    moment: Moment, flow: Flow, buckets: int, folder: Path, *, origin: Path, new_sinks: Sequence[str] = ()
) -> None:
    """Write a moment as a checkpoint that Spark begins with; notes of sinks and logs are for the caller to copy.

    `new_sinks` are those that have none, since the flow had no such step when they were made.
    """
    layout = cut(flow, buckets)
    offsets = {name: offset_of(flow, name, position) for name, position in moment.positions.items()}
    states = dict(_seeds(layout, moment))
    checkpoint = Checkpoint(folder)
    write_seeds(checkpoint.seeds, states, moment.waiting)
    for index, step in enumerate(flow.steps.values()):
        if isinstance(step.kind, Read) and _is_logged(step.kind.source) and step.name not in moment.logs:
            _begin_log(log_folder(folder, index), moment.positions.get(step.name))
    times = _before_sinks(layout, moment)
    checkpoint.take_over(flow, buckets, TakenOver.of(origin, offsets, moment.part, moment.waiting, new_sinks, times))


def _before_sinks(layout: Layout, moment: Moment) -> dict[str, dict[str, int]]:
    """Return how far time has come before each sink that wants to know, by the stage that sends to it."""
    steps = [layout.flow.steps[name] for name in layout.sinks if layout.partitionings[name].timed]
    return {
        step.name: {
            str(at): _behind(layout, layout.stages[at], step.inputs[0].step, moment)
            for at in layout.senders_to(step.name)
        }
        for step in steps
    }


def _behind(layout: Layout, stage: Stage, step: str, moment: Moment) -> int:
    """Return how far time has come at least behind a step's copy in a stage; dead letters know of nothing but the end."""
    if step != DEAD_LETTERS:
        return layout.flow.steps[step].time_behind(moment.watermarks().get(step, NO_WATERMARK))
    others = [moment.steps[name] for name in stage.steps if name in moment.steps and name != DEAD_LETTERS]
    return END if stage.level and all(each.ended for each in others) else NO_WATERMARK


def log_folder(folder: Path, index: int) -> Path:
    """Return where the driver keeps what a source sent that cannot be read twice, by the place of its step in the flow."""
    return folder / "sources" / str(index) / "log"


def check_sinks(flow: Flow, folder: Path) -> None:
    """Refuse sinks that Spark writes by itself while the engine has something left for them."""
    for step in flow.steps.values():
        if isinstance(step.kind, Write) and writes(step.kind.sink) is not None:
            rest = undelivered(ledger_of(folder, step.name).folder)
            if rest:
                raise RunError(
                    f"sink {step.name!r} is written by Spark itself, and {rest} parts wait for it in {folder}: let the flow "
                    "run on the engine until they are delivered, stop it (Ctrl-C), and move it then"
                )


def check_elsewhere(flow: Flow) -> None:
    """Refuse sources and sinks that only Spark can read and write."""
    for step in flow.steps.values():
        if isinstance(step.kind, Write) and isinstance(step.kind.sink, Jdbc | SparkTable):
            raise RunError(
                f"sink {step.name!r} ({step.kind.sink}) is written on Spark alone; the engine cannot go on with it"
            )
        if isinstance(step.kind, Read) and isinstance(step.kind.source, Jdbc | SparkTable):
            raise RunError(
                f"source {step.name!r} ({step.kind.source}) is read on Spark alone; the engine cannot go on with it"
            )


def settle_sinks(flow: Flow, folder: Path, part: int) -> None:
    """Let the sinks that Spark has written by itself go on behind a part on the engine, in a checkpoint that is new."""
    for step in flow.steps.values():
        if isinstance(step.kind, Write) and writes(step.kind.sink) is not None:
            notes = ledger_of(folder, step.name).folder
            if writes_in_parts(step.kind.sink):
                deliver_after(notes, part)
            else:
                Journal(notes / "written").commit(part)


# -- state ----------------------------------------------------------------------------------------------------------------


def _seeds(layout: Layout, moment: Moment) -> Any:
    times = Times(layout, moment.watermarks())
    for stage in layout.stages:
        for place, bucket in enumerate(stage.numbers):
            executor = Executor(layout, stage, bucket)
            watermarks = times.by_channel(executor)
            for name, task in executor.tasks.items():
                step = moment.steps[name]
                state = step.operator.snapshot(_share(stage, name, place))
                time = {"watermarks": watermarks[name], "watermark": times.behind(stage, name), "ended": step.ended}
                task.load({**time, "idle": [], "state": state})
            yield bucket, executor.save()


def _share(stage: Stage, step: str, place: int) -> Select | None:
    """Return which keys of a step belong to a bucket of a stage; None for all of them."""
    if step not in stage.places:
        return None
    return Select(place, stage.buckets, stage.places[step])


def _together(layout: Layout, step: Step, buckets: Mapping[int, Mapping[str, Any]], watermark: int) -> StepMoment:
    """Return a step as one, of which every bucket has the state of some keys."""
    states = [tasks[step.name] for _, tasks in sorted(buckets.items()) if step.name in tasks]
    operator = build(step)
    state_parts = states if step.state == "key" else states[:1]
    for each in state_parts:
        if each["state"]:
            operator.restore(each["state"])
    if isinstance(step.kind, EventTime) and not states:
        _set_time(operator, watermark)
    return StepMoment(operator, watermark, bool(states) and all(each["ended"] for each in states))


def _set_time(operator: Operator, watermark: int) -> None:
    """Have event time go on where it was told where records are read, in which nothing is saved."""
    if watermark != END:
        operator.restore(packed_state("event time", {"watermark": watermark}))


# -- sources --------------------------------------------------------------------------------------------------------------


def offset_of(flow: Flow, name: str, position: Any) -> Offset:
    """Return where Spark begins with a source that was read up to a position; raises RunError where it cannot."""
    source = _source(flow, name)
    native = reads(source)
    try:
        if native is not None:
            native.begin_at(position)
            return {"position": position, "ended": False}
        ranges = ranges_of(source, _AT_ONCE)
        if ranges is not None:
            return ranges.offset(position)
    except HeadwaterError as error:
        raise RunError(f"source {name!r} cannot be gone on with on Spark: {error}") from None
    _check_resumes(name, source)
    if resume_of(source) == "never":
        return {"position": 0, "ended": False}
    # a log that is begun for it has one entry, which says where it was
    return {"position": position if resume_of(source) == "sender" else int(position is not None), "ended": False}


def _open_source(moment: Moment, checkpoint: Checkpoint, flow: Flow, name: str, index: int, batch: int) -> None:
    """Take over how far a source was read."""
    source, native = _source(flow, name), reads(_source(flow, name))
    offset = checkpoint.offsets(flow, batch).get(name)
    try:
        if native is not None:
            takeover = checkpoint.takeover()
            lines = checkpoint.lines(flow, batch).get(name, ["-"])
            is_taken_over = takeover is not None and lines[0] == "-"
            moment.positions[name] = takeover.offsets[name]["position"] if is_taken_over else native.position_in(lines)  # type: ignore[union-attr]
            return
        ranges = ranges_of(source, _AT_ONCE)
        if ranges is not None:
            moment.positions[name] = None if offset is None else ranges.position(offset)
            return
    except HeadwaterError as error:
        raise RunError(f"source {name!r} cannot be gone on with on the engine: {error}") from None
    _check_resumes(name, source)
    folder, entry = log_folder(checkpoint.folder, index), 0 if offset is None else offset["position"]
    if resume_of(source) == "sender":
        moment.logs[name], moment.positions[name] = folder, entry
    elif resume_of(source) == "never":
        _check_all_read(name, folder, entry)
    elif comes_once(source) and (rounds := entries(folder, entry) if folder.is_dir() else []):
        moment.positions[name] = last_of(rounds[-1].data).position
        moment.arrived[name] = [batch for each in rounds for port, batch in batches_of(each.data) if port != DEAD]
    else:
        moment.positions[name] = last_of(entries(folder, entry - 1, entry)[-1].data).position if entry else None


def _is_logged(source: Source) -> bool:
    return reads(source) is None and ranges_of(source, _AT_ONCE) is None


def _check_resumes(name: str, source: Source) -> None:
    how = resume_of(source)
    if how == "beginning":
        raise RunError(
            f"source {name!r} ({source}) cannot be gone on with: it tells no position, and is read from its beginning "
            "after every stop, into state that has its records"
        )


def _check_all_read(name: str, folder: Path, entry: int) -> None:
    """Refuse what was received and not processed of a source that cannot bring it again."""
    rest = len(entries(folder, entry)) if folder.is_dir() else 0
    if rest:
        raise RunError(
            f"source {name!r} brings nothing twice, and {rest} rounds of what it brought wait in {folder}: run the flow on "
            "Spark once more while it is silent, stop it, and move it then"
        )


def _begin_log(folder: Path, position: Any) -> None:
    """Begin the log of a source with a round that says where it was, and has no records."""
    if position is None:
        return
    log = Log(folder)
    try:
        log.append(pack_round([], position, ended=False), records=0)
        log.sync()
    finally:
        log.close()


def _source(flow: Flow, name: str) -> Source:
    kind = flow.steps[name].kind
    assert isinstance(kind, Read)
    return kind.source
