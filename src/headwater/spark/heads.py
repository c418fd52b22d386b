"""How much of a flow's beginning Spark runs by operators of its own, in Java, before records come to our steps in Python.

It begins at a source that Spark reads itself and goes on from step to step, as long as one has a counterpart and its stream
is read by one step alone; where two such streams are joined, what comes of both is one. Filters and columns then go down to
the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.data.schema import Schema
from headwater.errors import listed
from headwater.flow.flow import Flow
from headwater.flow.steps import EventTime, Filter, Input, Join, Read, Step, WindowAggregate
from headwater.spark.columns import NotNativeError
from headwater.spark.frames import named
from headwater.spark.native import as_table, reads, table_in
from headwater.spark.options import Meaning
from headwater.spark.pruning import columns_used
from headwater.spark.relations import Relation, apply_step, joined, planned, planned_join, watermarked
from headwater.spark.stages import Layout, cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Head:
    """The steps behind a source that Spark runs itself, in order; there may be none."""

    source: str
    steps: tuple[Step, ...]
    #: what each of them is given
    relations: tuple[Relation, ...]
    meaning: Meaning
    schema: Schema  #: of what comes out
    columns: tuple[str, ...]  #: those of them that anybody behind it uses
    stopped: str = ""  #: the step that runs in Python for a reason of its own; none where a sink follows
    why: str = ""  #: that reason
    other: Head | None = None  #: what leads to the right side of the join among its steps

    @classmethod
    def none(cls, source: str, schema: Schema, why: str = "") -> Head:
        """Return the head of a source that is left to us as it is."""
        return cls(source, (), (), "headwater", schema, tuple(schema), source, why)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that it reads: its own comes first, and brings what comes out."""
        return (self.source,) if self.other is None else (self.source, self.other.source)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Its steps, and those that lead to the right side of a join."""
        return self.steps if self.other is None else (*self.steps, *self.other.steps)

    @property
    def waits(self) -> bool:
        """Whether any of its steps keeps records until Spark's watermark has passed them."""
        return any(isinstance(step.kind, WindowAggregate | Join) for step in self.steps)

    @property
    def narrows(self) -> str:
        """The step behind which there are other records than were read; the source, where there is none."""
        narrowing = [step.name for step in self.steps if isinstance(step.kind, Filter | WindowAggregate)]
        pairs = [step.name for step in self.steps if isinstance(step.kind, Join)]
        return (pairs or narrowing or [self.source])[-1]

    def of(self, rows: Mapping[str, DataFrame], last: Mapping[str, DataFrame] | None = None) -> DataFrame:
        """Return what comes out of the rows of its sources, those columns that are used.

        For streams, `last` has a row for each source once no other will come: what waits for Spark's watermark is then over.
        """
        return self._build(rows, last or {}).select(*map(named, self.columns))

    def _build(self, rows_of: Mapping[str, DataFrame], last: Mapping[str, DataFrame]) -> DataFrame:
        rows, time, end = rows_of[self.source], None, last.get(self.source)
        for step, relation in zip(self.steps, self.relations, strict=True):
            match step.kind:
                case EventTime():
                    time = step.kind  # Spark itself has filters before the watermark, wherever they are written
                case WindowAggregate(time=str(column)):
                    rows = apply_step(watermarked(rows, column, time, end), step, relation, self.meaning)
                case Join() as kind:
                    assert self.other is not None
                    right = self.other.of(rows_of, last)
                    rows = joined(watermarked(rows, kind.left_time, time, end), right, step)
                case _:
                    rows = apply_step(rows, step, relation, self.meaning)
        if time is not None and not self.waits:  # the right side of a join
            return watermarked(rows, time.column, time, end)
        return rows


def read_by_spark(flow: Flow, meaning: Meaning) -> Flow:
    """Return the flow with tables in place of files that Spark can read, where its own meaning is asked for."""
    sources = {step.name: step.kind.source for step in flow.steps.values() if isinstance(step.kind, Read)}
    tables = {} if meaning == "headwater" else {name: as_table(source) for name, source in sources.items()}
    return flow.replaced({name: Read(table) for name, table in tables.items() if table is not None})


def heads_of(flow: Flow, meaning: Meaning = "headwater") -> dict[str, Head]:
    """Return for each source of a flow what Spark itself does with it; those that it does not read have a head of no steps.

    A source on the right side of a join that Spark makes is in the head of the left one.
    """
    chains = {step.name: _Chain(flow, step, meaning) for step in flow.steps.values() if step.is_source}
    for step in flow.in_order():
        if isinstance(step.kind, Join):
            _join(step, chains)
    heads = {name: chain.head() for name, chain in chains.items()}
    rest = behind(flow, heads)
    return {name: replace(head, columns=columns_used(rest, name)) for name, head in heads.items()}


def behind(flow: Flow, heads: Mapping[str, Head]) -> Flow:
    """Return the flow of the steps that are left to us: its sources bring what comes out of the heads."""
    steps_of_spark = {step.name for head in heads.values() for step in head.all_steps}
    steps_of_spark |= {source for head in heads.values() for source in head.sources[1:]}
    last = {head.steps[-1].name: head.source for head in heads.values() if head.steps}
    steps = []
    for step in flow.steps.values():
        if step.name in steps_of_spark:
            continue
        outputs = {"out": heads[step.name].schema} if step.name in heads else step.outputs
        steps.append(replace(step, inputs=tuple(_moved(edge, last) for edge in step.inputs), outputs=outputs))
    return Flow.of_steps(flow.name, steps)


def _moved(edge: Input, last: Mapping[str, str]) -> Input:
    return replace(edge, step=last[edge.step], port="out") if edge.step in last else edge


def cut_behind(flow: Flow, heads: Mapping[str, Head], buckets: int) -> Layout:
    """Cut what is left to us into stages.

    Heads that keep no state leave stages the numbers, and state the mark, that they have without these heads.
    """
    rest = behind(flow, heads)
    if any(head.waits for head in heads.values()):
        return cut(rest, buckets)
    layout = cut(flow, buckets)
    last = {head.steps[-1].name: head.source for head in heads.values() if head.steps}
    stages = [replace(stage, steps=[name for name in stage.steps if name in rest.steps]) for stage in layout.stages]
    entries = [
        replace(entry, stream=(last[entry.stream[0]], "out") if entry.stream[0] in last else entry.stream)
        for entry in layout.entries
    ]
    return replace(layout, flow=rest, stages=stages, entries=entries, mark=layout.fingerprint)


@dataclass(slots=True)
class _Chain:
    """Steps behind a source, as far as Spark has counterparts."""

    flow: Flow
    source: Step
    meaning: Meaning
    steps: list[Step] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    relation: Relation | None = None  #: what comes out; None where Spark has no columns of the source
    stopped: str = ""
    why: str = ""
    other: Head | None = None

    def __post_init__(self) -> None:
        assert isinstance(self.source.kind, Read)
        table = table_in(reads(self.source.kind.source))
        self.relation = None if table is None else table.relation
        self._follow()

    @property
    def at(self) -> str:
        """The step whose output has come this far."""
        return self.steps[-1].name if self.steps else self.source.name

    def _follow(self) -> None:
        """Go on as far as Spark has a counterpart of the only step that reads what comes out."""
        while self.relation is not None:
            readers = self.flow.readers_of(self.at)
            if len(readers) > 1:
                names = listed(step.name for step in readers)
                self._stop(self.at, f"{names} read it, and Spark would read the source for each")
                return
            if not readers or readers[0].is_sink:
                return
            (step,) = readers
            try:
                following = planned(step, self.relation, self.meaning, self.flow)
            except NotNativeError as reason:
                self._stop(step.name, str(reason))
                return
            self._add(step, following)

    def _stop(self, step: str, why: str) -> None:
        self.stopped, self.why = step, why

    def _add(self, step: Step, following: Relation) -> None:
        assert self.relation is not None
        self.steps.append(step)
        self.relations.append(self.relation)
        self.relation = following

    def join(self, step: Step, right: _Chain) -> None:
        """Go on with what a join makes of this chain and another; raises NotNativeError where Spark cannot."""
        assert self.relation is not None
        assert right.relation is not None
        if self.other is not None:
            raise NotNativeError("one of its sides is a join already")
        following = planned_join(step, self.relation, right.relation, self.meaning, self.flow)
        self.other = right.head(whole=True)
        self._stop("", "")
        self._add(step, following)
        self._follow()

    def head(self, *, whole: bool = False) -> Head:
        """Return what Spark runs of it: not event time, unless somebody goes by it there or the `whole` of it is wanted."""
        if self.relation is None:
            return Head.none(self.source.name, self.source.outputs["out"], "it is read in Python, not by Spark")
        number, schema, stopped, why = len(self.steps), self.relation.schema, self.stopped, self.why
        timed = next((n for n, step in enumerate(self.steps) if isinstance(step.kind, EventTime)), None)
        waits = any(isinstance(step.kind, WindowAggregate | Join) for step in self.steps)
        if timed is not None and not waits and not whole:
            why = f"{stopped!r} is told event time by it, and runs in Python: {why}" if stopped else "nobody goes by it"
            number, schema, stopped = timed, self.relations[timed].schema, self.steps[timed].name
        steps, relations = tuple(self.steps[:number]), tuple(self.relations[:number])
        return Head(self.source.name, steps, relations, self.meaning, schema, tuple(schema), stopped, why, self.other)


def _join(step: Step, chains: dict[str, _Chain]) -> None:
    """Have the chains that lead to both sides of a join become one, if Spark can join them."""
    ends = {chain.at: chain for chain in chains.values() if chain.relation is not None}
    sides = [ends.get(edge.step) if edge.port == "out" else None for edge in step.inputs]
    left, right = sides
    if left is None or right is None or left is right:
        return
    try:
        left.join(step, right)
    except NotNativeError as reason:
        for side in (left, right):
            side.stopped, side.why = step.name, str(reason)
        return
    del chains[right.source.name]
