"""Dead letters that outlive their run: a flow that keeps them in a folder, and one that takes them up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import msgspec
import numpy as np

from headwater.clock import now_ns
from headwater.data.batch import CREATED, Batch, concat_batches, stamped
from headwater.data.schema import Schema
from headwater.errors import FlowError, listed
from headwater.flow.endpoints import DeliverySemantics, Reject, Writer, open_behind
from headwater.flow.flow import DEAD_LETTER_SCHEMA, DEAD_LETTERS, Flow
from headwater.flow.steps import DeadLetters, Input, Read, Step, Union, Write
from headwater.io.dead import DeadLetterFolder, Letter
from headwater.io.forwarding import Forward
from headwater.io.memory import Items
from headwater.io.records import JsonDecoder
from headwater.metrics import Report

KEPT = "dead letters kept"  #: the step that keeps them
_AGAIN = "the run that made it was killed, and reads the record again when it goes on"
_PART = 2000  #: letters that are replayed, and then released, together: each part opens all sinks anew


def keeping(flow: Flow, folder: str | Path) -> Flow:
    """Return the flow with its dead letters kept in a folder, beside what it does with them itself."""
    return _with_sink(flow, DeadLetterFolder(folder))


@dataclass
class ReplayOutcome:
    """What became of dead letters that were replayed."""

    released: list[int]  #: those that broke nothing this time
    kept: dict[int, str] = field(default_factory=dict)  #: those that stay in the folder, each with the reason
    report: Report | None = None  #: None where none of them could be given to the flow

    def then(self, later: ReplayOutcome) -> ReplayOutcome:
        """Return what became of these letters and of those of a later part."""
        both = [each.report for each in (self, later) if each.report is not None]
        report = both[0].then(both[1]) if len(both) == 2 else both[0] if both else None
        return ReplayOutcome([*self.released, *later.released], self.kept | later.kept, report)


def replay(
    flow: Flow, folder: str | Path, letters: Sequence[Letter], changes: Mapping[str, Any] | None = None
) -> ReplayOutcome:
    """Give records to the steps that they broke, each with the changes made, and release those that break nothing now.

    It is a run of its own: sinks get the results behind what they hold, and steps that keep state begin without any. It goes
    by parts of 2,000 letters, each released when sinks have its records: what is killed repeats one part at most. Where a
    step that they reach keeps state, all of them are one part, since a result may be of any of them.

    Of a run with a checkpoint that was killed, what it left behind that is taken back first, as the next run would: it could
    not be told from the results. Letters that come again with that run are not replayed.
    """
    store = DeadLetterFolder(folder)
    letters, outcome = _settle(flow, store, letters)
    size = _PART if _looks_at_each_alone(flow, letters) else max(1, len(letters))
    for start in range(0, len(letters), size):
        part = _replay_part(flow, letters[start : start + size], changes or {})
        store.release(part.released)
        outcome = outcome.then(part)
    return outcome


def _settle(flow: Flow, store: DeadLetterFolder, letters: Sequence[Letter]) -> tuple[list[Letter], ReplayOutcome]:
    """Take back what runs that were killed left; return the letters that are still there, and what became of the others."""
    checkpoints = {checkpoint for letter in letters if (checkpoint := store.checkpoint_of(letter)) is not None}
    if not checkpoints:
        return list(letters), ReplayOutcome([])
    from headwater.engine.checkpoint.rollback import roll_back

    for checkpoint in checkpoints:
        roll_back(keeping(flow, store.folder), checkpoint)
    present = {letter.id for letter in store.letters()}
    again = {letter.id: _AGAIN for letter in letters if letter.id not in present}
    return [letter for letter in letters if letter.id in present], ReplayOutcome([], again)


def _replay_part(flow: Flow, letters: Sequence[Letter], changes: Mapping[str, Any]) -> ReplayOutcome:
    """Run the flow with some letters; sinks have the results when it returns, and no letter is released yet."""
    from headwater.engine import run

    batches, errors = _by_entrance(flow, letters, changes)
    if not batches:
        return ReplayOutcome([], errors)
    moments = _Moments()
    again = _Again(moments)
    report = run(_with_sink(_only(flow, batches, moments), again))
    errors |= again.errors
    return ReplayOutcome([letter.id for letter in letters if letter.id not in errors], errors, report)


def _looks_at_each_alone(flow: Flow, letters: Sequence[Letter]) -> bool:
    """Say whether all steps that letters reach make of a record what they make of it whatever came before."""
    first = {letter.step for letter in letters} & flow.steps.keys()
    downstream = set().union(*(flow.reached_from(name) for name in first))
    return all(flow.steps[name].state == "none" for name in first | downstream)


_Entrance = tuple[
    str, int
]  #: a step, and the number of the input by which it gets the records; -1 for what a source makes


def _by_entrance(
    flow: Flow, letters: Sequence[Letter], changes: Mapping[str, Any]
) -> tuple[dict[_Entrance, Batch], dict[int, str]]:
    """Return the records for each input, and why the others cannot be given to the flow."""
    batches: dict[_Entrance, list[Batch]] = {}
    errors: dict[int, str] = {}
    for letter in letters:
        try:
            place, batch = _record(flow, letter, changes)
        except FlowError as error:
            errors[letter.id] = str(error)
        else:
            batches.setdefault(place, []).append(batch)
    return {place: concat_batches(some) for place, some in batches.items()}, errors


def _record(flow: Flow, letter: Letter, changes: Mapping[str, Any]) -> tuple[_Entrance, Batch]:
    step = flow.steps.get(letter.step) or _step_of_sink(flow, letter.step)
    if step is None:
        raise FlowError(f"flow {flow.name!r} has no step {letter.step!r} (any more)")
    try:
        record = msgspec.json.decode(letter.record)
    except msgspec.DecodeError:
        record = None
    if not isinstance(record, dict):
        raise FlowError("it is no record in JSON, and cannot be given to a step")
    record |= changes
    port, schema = _input(step, record)
    unknown = changes.keys() - set(schema)
    if unknown:
        raise FlowError(f"step {step.name!r} takes no field {listed(unknown)}; its fields are {listed(schema)}")
    reasons: list[str] = []
    batch = JsonDecoder(schema).batch([msgspec.json.encode(record)], lambda number, text, why: reasons.append(why))
    if reasons:
        raise FlowError(reasons[0])
    batch.stamps[:, CREATED] = letter.id  # until it is read, see `_Moments`
    return (step.name, port), batch


def _step_of_sink(flow: Flow, name: str) -> Step | None:
    """Return the step that writes to a sink, by what the sink is called: it may have refused a record behind its step."""
    for step in flow.steps.values():
        if isinstance(step.kind, Write):
            sink = step.kind.sink
            if name == str(sink.sink if isinstance(sink, Forward) else sink):
                return step
    return None


def _input(step: Step, record: Mapping[str, Any]) -> tuple[int, Schema]:
    """Return the input that a record came by, as its fields tell."""
    if step.is_source:
        return -1, step.outputs["out"]
    for port, edge in enumerate(step.inputs):
        if set(edge.schema) == record.keys():
            return port, edge.schema
    return 0, step.inputs[0].schema


def _only(flow: Flow, batches: Mapping[_Entrance, Batch], moments: _Moments) -> Flow:
    """Return what of a flow the records reach, with them in place of all that would come there otherwise."""
    downstream = set().union(*(flow.reached_from(name) for name, _ in batches)) - {DEAD_LETTERS}
    downstream -= flow.reached_from(DEAD_LETTERS) if DEAD_LETTERS in flow.steps else set()
    steps: list[Step] = []
    for step in flow.in_order():
        if step.name not in downstream:
            continue
        if step.is_source:
            steps.append(replace(step, kind=Read(_Letters(batches[step.name, -1], moments))))
            continue
        inputs = []
        for port, stream in enumerate(step.inputs):
            batch = batches.get((step.name, port))
            letters = None if batch is None else _Letters(batch, moments)
            more = _entry(f"{step.name} {port} (replayed)", stream, letters, stream.step in downstream)
            steps += more
            inputs.append(replace(stream, step=more[-1].name, port="out") if more else stream)
        kind = Write(_Behind(step.kind.sink)) if isinstance(step.kind, Write) else step.kind
        steps.append(replace(step, kind=kind, inputs=tuple(inputs)))
    return Flow.of_steps(flow.name, steps)


def _entry(name: str, stream: Input, letters: _Letters | None, feeds: bool) -> list[Step]:
    """Return the steps by which records come to an input, the last of which it reads; none where all is as it was."""
    if letters is None and feeds:
        return []
    source = Step(name, Read(letters or Items([], stream.schema)), (), {"out": stream.schema})
    if not feeds:
        return [source]
    both = (Input(stream.step, stream.port, stream.schema), Input(name, "out", stream.schema))
    return [source, Step(f"{name} and others", Union(), both, {"out": stream.schema})]


def _with_sink(flow: Flow, sink: Any) -> Flow:
    steps = list(flow.steps.values())
    if DEAD_LETTERS not in flow.steps:
        steps.append(Step(DEAD_LETTERS, DeadLetters(), (), {"out": DEAD_LETTER_SCHEMA}))
    steps.append(Step(KEPT, Write(sink), (Input(DEAD_LETTERS, "out", DEAD_LETTER_SCHEMA),)))
    part = Flow.of_steps(flow.name, steps)
    part.is_part = flow.is_part
    return part


class _Moments:
    """When letters were given to the flow, each at a moment of its own.

    A record bears the moment as its time of creation wherever it goes, which tells what became of the letter.
    """

    def __init__(self) -> None:
        self.letters: dict[int, int] = {}  #: by the moment
        self._last = 0
        self._lock = Lock()  # each source has a thread

    def stamps(self, letters: list[int]) -> Any:
        """Return stamps for letters that are given to the flow now; a nanosecond lies between two."""
        with self._lock:
            first = max(now_ns(), self._last + 1)
            self._last = first + len(letters)
            moments = range(first, self._last)
            self.letters.update(zip(moments, letters, strict=True))
        return stamped(len(letters), np.arange(first, self._last))


class _Letters:
    """A source of records that were dead letters."""

    def __init__(self, batch: Batch, moments: _Moments) -> None:
        self._batch, self._moments = batch, moments
        self.schema = Schema(())  # of the step, which says it

    def open(self, reject: Reject) -> _LettersReader:
        return _LettersReader(self._batch, self._moments)


class _LettersReader:
    def __init__(self, batch: Batch, moments: _Moments) -> None:
        self._batch, self._moments, self._at = batch, moments, 0

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        start, self._at = self._at, self._at + limit
        if start >= self._batch.length:
            return None
        some = self._batch.slice(start, min(self._at, self._batch.length))
        return Batch(some.columns, some.length, self._moments.stamps(some.stamps[:, CREATED].tolist()))

    def close(self) -> None:
        pass


class _Behind:
    """A sink that goes on behind what is there, where opening it would begin anew."""

    delivery: ClassVar[DeliverySemantics] = "neither"

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def open(self, schema: Schema) -> Writer:
        return open_behind(self._sink, schema)


class _Again:
    """A sink of the dead letters of a replay: which of those replayed they were."""

    def __init__(self, moments: _Moments) -> None:
        self._letters = moments.letters
        self.errors: dict[int, str] = {}

    def open(self, schema: Schema) -> _Again:
        return self

    def write(self, batch: Batch) -> None:
        for moment, row in zip(np.asarray(batch.stamps[:, CREATED]).tolist(), batch.rows(), strict=True):
            letter = self._letters.get(
                moment
            )  # None for what a step made at a time of its own: it may be of any of them
            for number in (letter,) if letter is not None else tuple(self._letters.values()):
                self.errors.setdefault(number, f"{row['step']}: {row['error']}")

    def close(self) -> None:
        pass
