"""Cuts a flow into stages: connected steps that run in one place, with records moving only between stages.

A stage begins at a source, or where records have to meet by a key that they are not grouped by yet. Steps that look at
each record alone run wherever their records are, in a copy for each stage that makes such records. Each stage has a
level, the number of moves before it; all stages of one level are one operator of Spark's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from struct import pack
from typing import Literal
from zlib import crc32

from headwater.flow.endpoints import Staging
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.partitioning import Partitioning, names_in_output
from headwater.flow.steps import Input, OutputName, Step
from headwater.spark.buckets import Numbers
from headwater.spark.partitioning import refuse_idle, spark_partitioning

#: How the records of a stage are spread over its buckets: not at all (a source's partitions), by key, all in one, or
#: evenly
StageKind = Literal["source", "key", "one", "even"]
#: How a stream is spread over the buckets of the stage that it enters.
Spread = Literal["key", "one", "all", "even"]
_FORM = 2  #: of what is kept for a bucket, and of how buckets are numbered


@dataclass(slots=True)
class StageEntry:
    """A stream that comes into a stage from other stages; `number` is its address in rows."""

    number: int
    stage: int
    stream: OutputName
    spread: Spread
    keys: tuple[str, ...]
    #: the steps of the stage that read it, and by which of their inputs
    readers: list[tuple[str, int]] = field(default_factory=list)
    #: the stages that it comes from
    senders: tuple[int, ...] = ()
    #: whether anything that it leads to wants to know how far event time has come
    timed: bool = False


@dataclass(slots=True)
class Stage:
    """Steps that run in one place, in the order in which records pass them."""

    number: int
    level: int
    kind: StageKind
    keys: tuple[str, ...] = ()
    buckets: int = 1
    #: what its buckets are called in rows
    numbers: tuple[int, ...] = ()
    steps: list[str] = field(default_factory=list)
    #: why each step runs here
    why: dict[str, str] = field(default_factory=dict)
    #: by which columns of its own key the records of each keyed step are spread
    places: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Layout:
    """All stages of a flow and the streams between them."""

    flow: Flow
    stages: list[Stage]
    entries: list[StageEntry]
    sinks: list[str]
    partitionings: dict[str, Partitioning]
    buckets: int  #: into how many parts keys are spread
    seeds: str = ""  #: the folder with the state that buckets begin with, if any: that of another runner, taken over
    mark: bytes = b""  #: what tells its state from others', where that is not for its own steps to say
    #: how tasks themselves write what goes to a sink, for sinks that let them
    stagings: Mapping[str, Staging] = field(default_factory=dict)

    @property
    def levels(self) -> int:
        """How many times records move."""
        return max(stage.level for stage in self.stages)

    @cached_property
    def fingerprint(self) -> bytes:
        """Eight bytes that tell state of this layout from that of others: into how many buckets, of which steps."""
        if self.mark:
            return self.mark
        steps = self.flow.to_json()["steps"]
        facts = [(step["name"], step["kind"], step["inputs"], step["outputs"]) for step in steps]
        return pack("<II", self.buckets, crc32(json.dumps(facts).encode(), _FORM))

    def buckets_of(self, level: int) -> list[int]:
        """Return what the buckets of one level are called in rows."""
        return [number for stage in self.stages if stage.level == level for number in stage.numbers]

    def steps_of(self, level: int) -> list[str]:
        """Return the steps that run at one level, each once."""
        return list(dict.fromkeys(name for stage in self.stages if stage.level == level for name in stage.steps))

    def senders_to(self, sink: str) -> list[int]:
        """Return the numbers of the stages that a sink gets its records from."""
        return [stage.number for stage in self.stages if sink in stage.steps]

    def source_stage(self, step: str) -> Stage:
        """Return the stage that begins at a source."""
        return next(stage for stage in self.stages if stage.kind == "source" and stage.steps[0] == step)

    def stage_of_bucket(self, bucket: int) -> Stage | None:
        """Return the stage to which a bucket belongs; None for what is on its way to a sink."""
        for stage in self.stages:
            if bucket in stage.numbers:
                return stage
        return None


def cut(flow: Flow, buckets: int) -> Layout:
    """Check a flow and cut it; `buckets` is into how many parts keys are spread."""
    flow.check()
    refuse_idle(flow)
    return _Cutter(flow, buckets).layout()


class _Cutter:
    def __init__(self, flow: Flow, buckets: int) -> None:
        self.flow, self.buckets = flow, buckets
        self.stages: list[Stage] = []
        self.entries: list[StageEntry] = []
        self.partitionings = {name: spark_partitioning(step) for name, step in flow.steps.items()}
        self._stages_of: dict[OutputName, list[Stage]] = {}  #: the stages in which a stream is made
        #: what the columns of a stage's key are called in a stream that it makes; absent when they are lost
        self._spread: dict[tuple[int, OutputName], tuple[str, ...]] = {}
        self._shared: dict[tuple[object, ...], Stage] = {}

    def layout(self) -> Layout:
        for step in _dead_letters_last(self.flow):
            self._place(step)
        self._mark_timed()
        numbers = Numbers(self.buckets)
        for stage in self.stages:
            if stage.level:  # one that has a single bucket need not have it where all others do
                first = stage.number if stage.buckets == 1 else 0
                stage.numbers = tuple(numbers.of_partition(first + i) for i in range(stage.buckets))
        sinks = [name for name, step in self.flow.steps.items() if step.is_sink]
        return Layout(self.flow, self.stages, self.entries, sinks, self.partitionings, self.buckets)

    def _place(self, step: Step) -> None:
        partitioning = self.partitionings[step.name]
        if partitioning.role == "source":
            stage = self._new("source", 0)
            self._put(step, stage, "a source")
        elif step.name == DEAD_LETTERS:
            for stage in list(self.stages):
                self._put(step, stage, "where the letters are written")
        elif partitioning.role in ("free", "sink") or self._copied_for_free(step, partitioning):
            for stage in self._makers(step.inputs):
                self._put(step, stage, _FREE.get(partitioning.role, "keeps no state"))
        elif partitioning.role == "time" and all(s.kind == "source" for s in self._makers(step.inputs)):
            for stage in self._makers(step.inputs):
                self._put(step, stage, "each part of a source tells its own event time")
        else:
            self._place_stateful(step, partitioning)

    def _copied_for_free(self, step: Step, partitioning: Partitioning) -> bool:
        return partitioning.role == "copied" and not any(edge.grouping == "all" for edge in step.inputs)

    def _makers(self, inputs: tuple[Input, ...]) -> list[Stage]:
        """Return the stages in which any of these streams is made, in order."""
        numbers = {stage.number for edge in inputs for stage in self._stages_of[edge.step, edge.port]}
        return [stage for stage in self.stages if stage.number in numbers]

    def _place_stateful(self, step: Step, partitioning: Partitioning) -> None:
        makers = self._makers(step.inputs)
        here = makers[0]
        if len(makers) == 1 and here.level and self._fits(step, partitioning, here):
            if here.kind == "key":
                here.places[step.name] = self._places(step, here)[0]
            where = f"by {', '.join(here.keys)}" if here.keys else "in one place"
            self._put(step, here, f"its records are {where} already")
            return
        level = 1 + max(stage.level for stage in makers)
        streams = tuple((edge.step, edge.port) for edge in step.inputs)
        if partitioning.role == "keyed":
            keys = next(edge.keys for edge in step.inputs if edge.keys)
            stage = self._shared_stage((level, "key", keys), "key", level, keys)
            why = f"keeps state by {', '.join(keys)}"
            stage.places[step.name] = tuple(range(len(keys)))
        elif partitioning.role == "copied":
            stage = self._shared_stage((level, "even", streams), "even", level)
            why = "every copy of it learns the same from the inputs that go to all"
        else:
            stage = self._shared_stage((level, "one", streams), "one", level)
            why = (
                "event time after a keyed step is that of all keys together; put event_time before key_by to avoid this"
                if partitioning.role == "time"
                else "keeps state without a key"
            )
        for port, edge in enumerate(step.inputs):
            self._enter(stage, step, port, edge)
        self._put(step, stage, why, step.inputs[0].keys if stage.kind == "key" else None)

    def _fits(self, step: Step, partitioning: Partitioning, stage: Stage) -> bool:
        """Say whether records that this stage makes are where the step needs them."""
        if stage.kind == "one":
            return True
        if stage.kind != "key" or partitioning.role != "keyed":
            return False
        return len(self._places(step, stage)) == 1

    def _places(self, step: Step, stage: Stage) -> list[tuple[int, ...]]:
        """Return by which columns of their keys a step's inputs are spread in a stage, each way once; none if one is not."""
        places = set()
        for edge in step.inputs:
            names = self._spread.get((stage.number, (edge.step, edge.port)))
            if names is None or not edge.keys or not set(names) <= set(edge.keys):
                return []
            places.add(tuple(edge.keys.index(name) for name in names))
        return list(places)

    def _shared_stage(self, key: tuple[object, ...], kind: StageKind, level: int, keys: tuple[str, ...] = ()) -> Stage:
        if key not in self._shared:
            self._shared[key] = self._new(kind, level, keys)
        return self._shared[key]

    def _new(self, kind: StageKind, level: int, keys: tuple[str, ...] = ()) -> Stage:
        stage = Stage(len(self.stages), level, kind, keys, self.buckets if kind in ("key", "even") else 1)
        self.stages.append(stage)
        return stage

    def _enter(self, stage: Stage, step: Step, port: int, edge: Input) -> None:
        """Let a stream into a stage, once for all steps that read it there in the same way."""
        spread: Spread
        if stage.kind == "one":
            spread = "one"
        elif edge.grouping == "all":
            spread = "all"
        else:
            spread = "key" if stage.kind == "key" else "even"
        keys = edge.keys if spread == "key" else ()
        stream = edge.step, edge.port
        for entry in self.entries:
            if (entry.stage, entry.stream, entry.spread, entry.keys) == (stage.number, stream, spread, keys):
                entry.readers.append((step.name, port))
                return
        entry = StageEntry(len(self.entries), stage.number, stream, spread, keys, [(step.name, port)])
        entry.senders = tuple(sender.number for sender in self._stages_of[stream])
        self.entries.append(entry)

    def _put(self, step: Step, stage: Stage, why: str, entered_by: tuple[str, ...] | None = None) -> None:
        stage.steps.append(step.name)
        stage.why[step.name] = why
        spread_by = entered_by or self._held_by_inputs(step, stage)
        for port in step.outputs:
            self._stages_of.setdefault((step.name, port), []).append(stage)
            names = None if spread_by is None else names_in_output(step, port, spread_by)
            if names is not None:
                self._spread[stage.number, (step.name, port)] = names

    def _held_by_inputs(self, step: Step, stage: Stage) -> tuple[str, ...] | None:
        """Return the key columns in the step's inputs, when those that it has here agree on them."""
        streams = [(edge.step, edge.port) for edge in step.inputs]
        if self.partitionings[step.name].role == "keyed":
            streams = streams[:1]
        spreads = {self._spread.get((stage.number, s)) for s in streams if stage in self._stages_of[s]}
        return spreads.pop() if len(spreads) == 1 else None

    def _mark_timed(self) -> None:
        """Find out which entries lead to a step for which event time matters, the last levels first.

        Who sends dead letters on has to know of the end of every step.
        """
        letters = self.flow.reached_from(DEAD_LETTERS) if DEAD_LETTERS in self.flow.steps else ()
        matters = any(self.partitionings[name].timed for name in letters)
        for entry in sorted(self.entries, key=lambda entry: -self.stages[entry.stage].level):
            entry.timed = matters or any(self._leads_to_timed(reader, entry.stage) for reader, _ in entry.readers)

    def _leads_to_timed(self, name: str, stage: int) -> bool:
        if self.partitionings[name].timed:
            return True
        if any(e.timed and e.stream[0] == name and stage in e.senders for e in self.entries):
            return True
        inside = [r.name for r in self.flow.readers_of(name) if r.name in self.stages[stage].steps]
        return any(self._leads_to_timed(reader, stage) for reader in inside if reader != name)


_FREE = {"sink": "written by the driver", "copied": "no input changes its state"}


def _dead_letters_last(flow: Flow) -> list[Step]:
    """Return the steps in order, those that read dead letters after all that could write one."""
    order = flow.in_order()
    after = {DEAD_LETTERS}
    for step in order:
        if any(edge.step in after for edge in step.inputs):
            after.add(step.name)
    return [s for s in order if s.name not in after] + [s for s in order if s.name in after]
